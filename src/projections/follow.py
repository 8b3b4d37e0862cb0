"""Followers of the sealed log: pages in its order, and checkpoints that move with what was made of them."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Sequence
from struct import Struct, error
from typing import Protocol, Self

from attrs import frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import DataError
from .records import Row

sql = Blocks("postledger.projections", "follow.sql")

LANE = 0
"""There is one today."""

PAGE = 1000

_FORMAT = 1
_PARTS = Struct(">BQQ")


@frozen(order=True)
class Checkpoint:
    """How far a reader of the feed has come: after this position of this block. The first one is before everything."""

    block_no: int = 0
    position: int = 0

    def encode(self) -> str:
        """Text for users outside, who keep it and give it back; what it says may change."""
        return urlsafe_b64encode(_PARTS.pack(_FORMAT, self.block_no, self.position)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """The reverse. Raises DataError for anything that `encode` did not write."""
        try:
            form, block_no, position = _PARTS.unpack(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
            checkpoint = cls(block_no, position)
        except (ValueError, error):
            checkpoint, form = cls(), None
        if form != _FORMAT or checkpoint.encode() != text:
            raise DataError(f"{text!r} is no checkpoint: give one that was handed out, or none to begin with")
        return checkpoint


@frozen
class Page:
    """Events in feed order, as rows: block_no, position, campaign_id, delivery_id, version, type, body (text), at.

    `checkpoint` is where to go on; it moves on where there was nothing to read too. `is_last`: no more was sealed.
    """

    events: Sequence[Row]
    checkpoint: Checkpoint
    is_last: bool


class Follower(Protocol):
    """Makes something of the events, by its name once each and in order.

    What it does through `conn` is committed with its checkpoint, or not at all; what it does elsewhere may be repeated.
    Who needs an event decoded calls `records.read_event`. One that cannot be read raises UnreadableEvent, which names
    its position; the follower then stands still until a program that can read it comes. Nothing is ever passed over.
    """

    @property
    def name(self) -> str: ...

    async def apply(self, conn: Connection, events: Sequence[Row]) -> None: ...


async def head(conn: Connection) -> Checkpoint:
    """The end of what has been sealed."""
    row = await conn.fetchrow(sql.head, LANE)
    return Checkpoint() if row is None else Checkpoint(*row)


async def reachable_head(conn: Connection, after: Checkpoint) -> Checkpoint:
    """The same for who has come to `after`.

    Raises DataError for a checkpoint beyond the end: it comes from another database, or from a later state of this one.
    """
    found = await head(conn)
    if after > found:
        raise DataError(
            f"the checkpoint is beyond the last block, {found.block_no}: it is of another database, or of this one "
            "before that was restored to an earlier time"
        )
    return found


async def read_page(conn: Connection, after: Checkpoint, limit: int = PAGE) -> Page:
    """Up to `limit` events after a checkpoint. `conn` is in READ COMMITTED, or in one snapshot.

    Raises DataError for a checkpoint beyond the end.
    """
    end = await reachable_head(conn, after)  # before the page, which then has all up to it, and perhaps more
    events = await conn.fetch(sql.page, LANE, after.block_no, after.position, limit)
    last = Checkpoint(events[-1]["block_no"], events[-1]["position"]) if events else after
    is_last = len(events) < limit
    return Page(events, max(last, end) if is_last else last, is_last)


async def read_page_of(conn: Connection, after: Checkpoint, campaign_id: int, limit: int = PAGE) -> Page:
    """The same of one campaign: its events among the next `limit`, so perhaps none before the last page."""
    end = await reachable_head(conn, after)
    rows = await conn.fetch(sql.page_of, LANE, after.block_no, after.position, limit, campaign_id)
    last = Checkpoint(rows[-1]["block_no"], rows[-1]["position"]) if rows else after
    is_last = not rows or rows[0]["n"] < limit
    events = [row for row in rows if row["campaign_id"] == campaign_id]
    return Page(events, max(last, end) if is_last else last, is_last)


@frozen
class Touched:
    """Whose events the next page has; its `checkpoint` and `is_last` are those of a Page."""

    campaigns: Sequence[int]
    checkpoint: Checkpoint
    is_last: bool


async def read_touched(conn: Connection, after: Checkpoint, limit: int = PAGE) -> Touched:
    """For who wants to know where something happened, and not what: nothing of the events leaves the server."""
    end = await reachable_head(conn, after)
    campaigns, count, block_no, position = await fetch_one(
        conn, sql.touched, LANE, after.block_no, after.position, limit
    )
    last = Checkpoint(block_no, position) if count else after
    is_last = count < limit
    return Touched(campaigns, max(last, end) if is_last else last, is_last)


async def step(conn: Connection, follower: Follower, limit: int = PAGE) -> Page | None:
    """One page and the checkpoint after it, in one transaction; None when somebody else is at it.

    `conn` must be in no transaction. What `apply` raises passes, and nothing has happened then.
    """
    async with conn.transaction(isolation="read_committed"):
        after = await _lock(conn, follower.name)
        if after is None:
            return None
        page = await read_page(conn, after, limit)
        if page.events:
            await follower.apply(conn, page.events)
        if page.checkpoint != after:
            await conn.execute(sql.move, follower.name, page.checkpoint.block_no, page.checkpoint.position)
    return page


async def rebuild(
    conn: Connection, follower: Follower, clear: Callable[[Connection], Awaitable[None]], limit: int = PAGE
) -> int:
    """What a follower has made, made anew from the first block in one transaction; how many events that were.

    `clear` takes away what is there, through the same connection. Readers see that until the new is whole, and what
    fails on the way leaves it as it was. Waits for whoever drives the follower. `conn` must be in no transaction.
    """
    count = 0
    async with conn.transaction(isolation="read_committed"):
        await conn.execute(sql.register, follower.name, LANE)
        await conn.execute(sql.wait, follower.name)
        await clear(conn)
        page = Page((), Checkpoint(), is_last=False)
        while not page.is_last:
            page = await read_page(conn, page.checkpoint, limit)
            if page.events:
                await follower.apply(conn, page.events)
            count += len(page.events)
        await conn.execute(sql.move, follower.name, page.checkpoint.block_no, page.checkpoint.position)
    return count


async def _lock(conn: Connection, name: str) -> Checkpoint | None:
    row = await conn.fetchrow(sql.lock, name)
    if row is None:
        # The first start, perhaps at the same time as another: whoever comes second waits, and goes on from there.
        await conn.execute(sql.register, name, LANE)
        row = await conn.fetchrow(sql.lock, name)
    return None if row is None else Checkpoint(*row)
