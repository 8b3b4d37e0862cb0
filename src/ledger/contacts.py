"""Lists of contacts: who is on them, who has left, and how people come in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import NotFoundError, UnavailableError
from ..messages.addresses import normalise
from .audience import staging
from .audience.report import Line, as_json, as_text
from .audience.staging import Staged

sql = Blocks("postledger.ledger", "contacts.sql")

PAGE = 10_000
"""People in one transaction of an import: half a second in which a bounce of one of them would have to wait."""

OPERATOR = "operator"


@frozen
class List:
    """A list and how many are on it; `unsubscribed`: who has left, or said beforehand that they do not want to be."""

    id: int
    name: str
    created_at: datetime
    subscribed: int
    unsubscribed: int


@frozen
class Imported:
    """What became of the rows of an import into a list: counts by outcome.

    Added, present (on the list already), duplicate, unsubscribed, invalid. `lines` are those of which somebody may want
    to know, 10,000 at most.
    """

    counts: Mapping[str, int]
    lines: Sequence[Line]
    unit: str

    @property
    def lines_omitted(self) -> int:
        return sum(self.counts[outcome] for outcome in ("duplicate", "unsubscribed", "invalid")) - len(self.lines)

    def to_json(self) -> dict[str, Any]:
        """The public form."""
        return as_json(self.counts, self.lines, self.lines_omitted)

    def to_text(self) -> str:
        """For people."""
        return as_text(self.counts, self.lines, self.lines_omitted, self.unit)


async def lists(conn: Connection) -> list[List]:
    """All of them, by name."""
    return [List(**row) for row in await conn.fetch(sql.lists)]


async def find_list(conn: Connection, name: str) -> int:
    """The id of a list. Raises NotFoundError."""
    found: int | None = await conn.fetchval(sql.list_named, name)
    if found is None:
        raise NotFoundError(f"no list is called {name!r}: 'postledger contacts lists' shows all of them")
    return found


async def keep_list(conn: Connection, name: str) -> int:
    """The id of a list, made where it is new."""
    await conn.execute(sql.keep_list, name)
    return await find_list(conn, name)


async def import_people(
    conn: Connection, list_id: int, staged: Staged, *, unit: str = "line", progress: Callable[[int], None] | None = None
) -> Imported:
    """Subscribes the staged people to a list, page by page; nobody who unsubscribed comes back by that.

    `conn` holds the import and is in no transaction. Whatever stops it, the same import again goes on. Raises
    UnavailableError when the server lost staged rows meanwhile.
    """
    counts = {"added": 0, "present": 0, "duplicate": 0, "unsubscribed": 0, "invalid": staged.invalid}
    counts["duplicate"] = await conn.fetchval(sql.mark_duplicates, staged.import_id)
    last: tuple[int, int] | None = (0, 0)
    while last is not None:
        last, *found = await fetch_one(conn, sql.import_page, list_id, staged.import_id, last, PAGE)
        for name, n in zip(("added", "present", "unsubscribed", "invalid"), found, strict=True):
            counts[name] += n
        if progress:
            progress(sum(counts.values()))
    if sum(counts.values()) != staged.rows:
        raise UnavailableError("the server lost staged rows, as it does when it crashes: start the import again")
    imported = Imported(counts, await staging.read_lines(conn, staged.import_id), unit)
    async with conn.transaction():
        await conn.execute(sql.close_import, staged.import_id, {"rows": staged.rows, **counts})
        await staging.finish(conn, staged.import_id)
    return imported


async def stage(conn: Connection, list_id: int, name: str) -> Staged:
    """The people of a list, staged for `enqueue_import`; none of them passes through here."""
    async with staging.staging(conn, f"list {name}") as staged:
        staged.rows = await conn.fetchval(sql.stage_list, staged.import_id, list_id)
    return staged


async def unsubscribe(conn: Connection, address: str, list_id: int | None, source: str = OPERATOR) -> bool:
    """Takes an address off a list, or off everything (None). False: it was so already. Raises InvalidAddress."""
    async with conn.transaction():
        done: bool = await conn.fetchval(sql.unsubscribe, normalise(address).full, list_id, source)
    return done


async def subscribe(conn: Connection, address: str, list_id: int, source: str = OPERATOR) -> bool:
    """Puts an address on a list because the person wants it, which undoes an unsubscription from that list.

    False: it was so already. Raises InvalidAddress, and PL002 for who is suppressed or was erased. The address is kept:
    a list is written to by what its contacts' rows say.
    """
    normal = normalise(address).full
    async with conn.transaction():
        done: bool = await conn.fetchval(sql.subscribe, normal, list_id, source)
        await conn.execute(sql.know_address, normal)
    return done


async def analyze(conn: Connection) -> None:
    """Renews the planner's statistics; on a connection of the tables' owner, or it is a warning."""
    await conn.execute(sql.analyze)
