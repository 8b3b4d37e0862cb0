"""How campaigns stand by the sealed log: counts, pace, first and last times, without counting millions of rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from attrs import frozen

from ..database import Blocks, Connection, fetch_one

sql = Blocks("postledger.projections", "progress.sql")

PAGE = 10_000
"""Events in one transaction of the follower."""

REBUILD_PAGE = 100_000
"""Within one transaction each page leaves a dead version of a campaign's row, and steps over those before it."""


@frozen
class Progress:
    """A campaign a moment ago: up to this block, or to some event in it where it is a large one."""

    pending: int
    sending: int
    sent: int
    failed: int
    skipped: int
    cancelled: int
    unknown: int
    first_at: datetime
    last_at: datetime
    first_sent_at: datetime | None
    last_sent_at: datetime | None
    block_no: int
    sealed_at: datetime


async def follow(conn: Connection, *, timeout: float | None = None) -> int | None:
    """One page of the follower; how many events it had. 0: it has caught up. None: somebody else is at it."""
    followed: int | None = await conn.fetchval(sql.follow, PAGE, timeout=timeout)
    return followed


async def rebuild(conn: Connection) -> int:
    """All of it anew from the first block, in one transaction; how many events that were. `conn` must be in none.

    Readers see what was there until it is done; who follows meanwhile waits or is told that somebody is at it.
    """
    count = 0
    async with conn.transaction(isolation="read_committed"):
        await conn.execute(sql.lock)
        for statement in (sql.clear_counts, sql.clear_minutes, sql.begin_again):
            await conn.execute(statement)
        while followed := await conn.fetchval(sql.follow, REBUILD_PAGE):
            count += followed
    return count


async def read(conn: Connection, campaign_id: int) -> Progress | None:
    """How a campaign stands; None for one of whose deliveries nothing has been sealed."""
    row = await conn.fetchrow(sql.read, campaign_id)
    return None if row is None else Progress(*row)


@frozen
class Standing:
    """The same for whoever looks often and at many: `status` is the row's, a moment newer than the counts."""

    campaign_id: int
    status: str
    pending: int
    sending: int
    sent: int
    failed: int
    skipped: int
    cancelled: int
    unknown: int
    first_sent_at: datetime | None
    last_sent_at: datetime | None
    block_no: int
    position: int
    sealed_at: datetime | None


async def standing(conn: Connection, campaign_ids: Sequence[int]) -> list[Standing]:
    """How these campaigns stand, those of them that there are; all up to the same place of the feed."""
    return [Standing(*row) for row in await conn.fetch(sql.standing, campaign_ids)]


async def active(conn: Connection, limit: int) -> list[int]:
    """The ids of campaigns that are scheduled, being sent or paused, the newest first."""
    return [row["id"] for row in await conn.fetch(sql.active, limit)]


async def followed(conn: Connection) -> tuple[int, int]:
    """Up to which block and position the counts hold."""
    block_no, position = await fetch_one(conn, sql.followed)
    return block_no, position


async def minutes(conn: Connection, campaign_id: int, limit: int = 60) -> Sequence[tuple[datetime, int]]:
    """How many were sent in each minute in which any were, the latest first."""
    return [(row["minute"], row["sent"]) for row in await conn.fetch(sql.minutes, campaign_id, limit)]
