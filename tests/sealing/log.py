"""Appending to the log by hand, sealing it, and reading it to the end."""

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal
from postledger.projections import follow
from postledger.projections.follow import Checkpoint

Stream = tuple[int, int]
At = tuple[int, int]
"""Block and position."""

APPEND = """
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    SELECT $1, $2, v, 'Noted', jsonb_build_object('v', v) FROM generate_series($3::int, $4::int) v RETURNING position
"""
SEEN = "CREATE TABLE public.seen (id bigserial, follower text, block_no bigint, position bigint, type text)"


async def make_seen(owner: Connection) -> None:
    """Where a `Keeper` writes: what happens to it and to the checkpoint happens together."""
    await owner.execute(SEEN)
    await owner.execute("GRANT ALL ON public.seen TO postledger_app")
    await owner.execute("GRANT USAGE ON SEQUENCE public.seen_id_seq TO postledger_app")


async def append(conn: Connection, stream: Stream, first: int = 1, count: int = 1) -> list[int]:
    """So many events of one stream, the first with this version; their positions."""
    rows = await conn.fetch(APPEND, *stream, first, first + count - 1)
    return [row["position"] for row in rows]


class Broken(Exception):  # noqa: N818
    """A follower's own trouble."""


class Keeper:
    """Writes down what it is given; `break_off` is awaited after that."""

    def __init__(self, name: str, types: set[str] | None = None, *, break_off: Any = None) -> None:
        self.name = name
        self.types = types
        self.break_off = break_off
        self.calls = 0

    async def apply(self, conn: Connection, events: Sequence[Any]) -> None:
        self.calls += 1
        rows = [
            (self.name, e["block_no"], e["position"], e["type"])
            for e in events
            if self.types is None or e["type"] in self.types
        ]
        await conn.executemany(
            "INSERT INTO public.seen (follower, block_no, position, type) VALUES ($1, $2, $3, $4)", rows
        )
        if self.break_off is not None:
            await self.break_off(conn)


async def seen(conn: Connection, name: str) -> list[At]:
    """What a keeper has written down, in that order."""
    rows = await conn.fetch("SELECT block_no, position FROM public.seen WHERE follower = $1 ORDER BY id", name)
    return [tuple(row) for row in rows]


async def checkpoint(conn: Connection, name: str) -> Checkpoint | None:
    row = await conn.fetchrow("SELECT block_no, position FROM followers WHERE name = $1", name)
    return None if row is None else Checkpoint(*row)


async def feed(conn: Connection, after: Checkpoint = Checkpoint(), limit: int = 1000) -> list[At]:  # noqa: B008 - frozen
    """All that is sealed after a checkpoint, page by page."""
    found: list[At] = []
    while True:
        page = await follow.read_page(conn, after, limit)
        found += [(e["block_no"], e["position"]) for e in page.events]
        after = page.checkpoint
        if page.is_last:
            return found


@frozen
class Log:
    """`conn` is that of a process which only appends, seals and reads."""

    database: Database
    conn: Connection
    others: list[Connection] = field(factory=list)

    async def append(self, stream: Stream = (1, 1), first: int = 1, count: int = 1) -> list[int]:
        return await append(self.conn, stream, first, count)

    async def seal(self) -> int | None:
        return await seal(self.conn)

    async def feed(self, after: Checkpoint = Checkpoint(), limit: int = 1000) -> list[At]:  # noqa: B008
        return await feed(self.conn, after, limit)

    async def head(self) -> Checkpoint:
        return (await follow.read_page(self.conn, Checkpoint(), 100_000)).checkpoint

    async def connect(self) -> Connection:
        """Another connection, closed with the test."""
        conn = await self.database.connect()
        self.others.append(conn)
        return conn

    async def close(self) -> None:
        for conn in self.others:
            conn.terminate()
