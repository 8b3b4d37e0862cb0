"""Writers, sealers and followers at once, while connections and the server are killed; then everything is compared."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
from attrs import define, field

from postledger.database import GONE, Connection, Database
from postledger.errors import UnavailableError
from postledger.ledger.sealing import seal, seal_all
from postledger.projections import follow, progress
from postledger.projections.verify import verify
from tests.sealing.log import Broken, Keeper, checkpoint, feed, make_seen, seen
from tests.servers import PrivateServer

APP = "postledger_app"
LOST = (*GONE, UnavailableError, asyncpg.SerializationError, asyncpg.ObjectNotInPrerequisiteStateError)
"""The last: a prepared transaction whose session is just going."""

CAMPAIGN = 1
WHOLE = "for the whole run"
HELD = 1_000_000
"""Streams from here on are those of transactions that are held open."""

STREAMS = 20
"""Of each writer."""

SIZES = (1, 1, 2, 5, 20, 500)
"""Events in one go."""

APPEND = """
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    SELECT $1, $2, v, CASE WHEN v = 1 THEN 'Queued' WHEN v % 2 = 0 THEN 'Claimed' ELSE 'Released' END, '{}'
    FROM generate_series($3::int, $4::int) v RETURNING position
"""
VERSIONS = "SELECT delivery_id, max(version) AS version FROM events WHERE campaign_id = $1 GROUP BY 1"
KILL_ONE = """
    SELECT pid, pg_terminate_backend(pid) FROM (
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE '%storm %'
        ORDER BY random() LIMIT 1) a
"""


@define
class Known:
    """What the writers know: which positions were committed for certain, and which were rolled back."""

    tally: Counter[str] = field(factory=Counter)
    certain: set[int] = field(factory=set)
    undone: set[int] = field(factory=set)
    open: dict[str, list[int]] = field(factory=dict)  # of prepared transactions


@define
class Storm:
    """`rng` decides what is done; when it is done is up to the machine."""

    server: PrivateServer
    rng: random.Random
    writers: int
    known: Known = field(factory=Known)

    @property
    def tally(self) -> Counter[str]:
        return self.known.tally

    @property
    def names(self) -> list[str]:
        return [f"keeper {n}" for n in range(3)]

    async def begin(self) -> None:
        async with Database(self.server.dsn).connection(role=None) as owner:
            await make_seen(owner)
            await owner.execute("BEGIN")
            self.known.open[WHOLE] = await self._written(owner, HELD, 1, 2000)
            await owner.execute(f"PREPARE TRANSACTION '{WHOLE}'")

    async def round(self, transactions: int, *, kill: bool) -> None:
        """So many more transactions, then the server is killed, or stopped at once; it comes back."""
        stop, until = asyncio.Event(), self.tally["transactions"] + transactions
        held = await self._hold()
        async with asyncio.TaskGroup() as group:
            for number in range(self.writers):
                group.create_task(self._again(f"writes {number}", stop, self._writer(number)))
            for number in range(2):
                group.create_task(self._again(f"seals {number}", stop, self._seal))
            for name in self.names:
                group.create_task(self._again(f"follows {name}", stop, self._follower(name)))
            group.create_task(self._again("counts", stop, self._count))
            group.create_task(self._again("breaks", stop, self._break, role=None))
            while self.tally["transactions"] < until:  # noqa: ASYNC110 - others do the work
                await asyncio.sleep(0.02)
            if kill:
                self.tally["server kills"] += 1
                await (self.server.kill() if self.rng.random() < 0.5 else self.server.stop("immediate"))
            stop.set()
        await self._let_go(held, lost=kill)
        if kill:
            await self.server.start()

    async def _again(
        self, label: str, stop: asyncio.Event, act: Callable[[Connection], Awaitable[None]], role: str | None = APP
    ) -> None:
        """Repeats it, on a new connection when the old one is gone."""
        while not stop.is_set():
            try:
                async with Database(self.server.dsn).connection(label=f"storm {label}", role=role) as conn:
                    while not stop.is_set():
                        await act(conn)
            except LOST:
                self.tally["lost connections"] += 1
                await asyncio.sleep(0.02)

    async def _hold(self) -> Connection:
        """A transaction that is open for the whole round."""
        conn = await Database(self.server.dsn).connect(label="held")
        self.tally["rounds"] += 1
        self.tally["transactions"] += 1
        await conn.execute("BEGIN")
        self.known.open["held"] = await self._written(conn, HELD + self.tally["rounds"], 1, 2000)
        return conn

    async def _let_go(self, held: Connection, *, lost: bool) -> None:
        written = self.known.open.pop("held")
        if lost:
            held.terminate()
            self.known.undone.update(written)
            return
        await held.execute("COMMIT")
        self.known.certain.update(written)
        await held.close()

    async def _written(self, conn: Connection, stream: int, first: int, count: int) -> list[int]:
        rows = await conn.fetch(APPEND, CAMPAIGN, stream, first, first + count - 1)
        self.tally["events written"] += count
        return [row[0] for row in rows]

    def _writer(self, number: int) -> Callable[[Connection], Awaitable[None]]:
        versions: dict[int, int] = {}
        of: list[Connection] = []

        async def act(conn: Connection) -> None:
            if of != [conn]:  # what became of the last commit the server knows
                await self._settle_prepared(conn, f"{number}.%")
                found = {row["delivery_id"]: row["version"] for row in await conn.fetch(VERSIONS, CAMPAIGN)}
                own = range(1 + number * STREAMS, 1 + (number + 1) * STREAMS)
                versions.update({stream: found.get(stream, 0) for stream in own})
                of[:] = [conn]
            await self._transaction(conn, number, versions)

        return act

    async def _transaction(self, conn: Connection, number: int, versions: dict[int, int]) -> None:
        rng, now = self.rng, dict(versions)
        written: list[int] = []
        await conn.execute(f"BEGIN ISOLATION LEVEL {rng.choice(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])}")
        self.tally["transactions"] += 1
        for step in range(rng.choice((1, 1, 1, 2, 4))):
            before, so_far = dict(now), len(written)
            saves = rng.random() < 0.3
            if saves:
                await conn.execute(f"SAVEPOINT s{step}")
            stream = rng.choice([*versions])
            count = rng.choice(SIZES)
            written += await self._written(conn, stream, now[stream] + 1, count)
            now[stream] += count
            if saves and rng.random() < 0.5:
                await conn.execute(f"ROLLBACK TO s{step}")
                self.tally["back to a savepoint"] += 1
                self.known.undone.update(written[so_far:])
                written, now = written[:so_far], before
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.05)
        await self._end(conn, number, versions, now, written)

    async def _end(
        self, conn: Connection, number: int, versions: dict[int, int], now: dict[int, int], written: list[int]
    ) -> None:
        chance = self.rng.random()
        if chance < 0.2:
            await conn.execute("ROLLBACK")
            self.tally["rollbacks"] += 1
            self.known.undone.update(written)
            return
        if chance < 0.3:
            self.tally["prepared"] += 1
            gid = f"{number}.{self.tally['prepared']}"
            self.known.open[gid] = written
            await conn.execute(f"PREPARE TRANSACTION '{gid}'")
            await asyncio.sleep(self.rng.random() * 0.1)
            keep = self.rng.random() < 0.7
            await conn.execute(f"{'COMMIT' if keep else 'ROLLBACK'} PREPARED '{gid}'")
            self.known.open.pop(gid)
            (self.known.certain if keep else self.known.undone).update(written)
            if not keep:
                return
        else:
            await conn.execute("COMMIT")
            self.known.certain.update(written)
        self.tally["commits"] += 1
        versions.update(now)

    async def _settle_prepared(self, conn: Connection, gids: str) -> None:
        """What was prepared when its connection or the server went is still there, and locks its streams."""
        for row in await conn.fetch("SELECT gid FROM pg_prepared_xacts WHERE gid LIKE $1", gids):
            keep = row["gid"] == WHOLE or self.rng.random() < 0.5
            await conn.execute(f"{'COMMIT' if keep else 'ROLLBACK'} PREPARED '{row['gid']}'")
            self.tally["prepared, and left"] += 1
            (self.known.certain if keep else self.known.undone).update(self.known.open.pop(row["gid"]))

    async def _seal(self, conn: Connection) -> None:
        if await seal(conn):
            self.tally["blocks"] += 1
        else:
            await asyncio.sleep(self.rng.random() * 0.05)

    async def _count(self, conn: Connection) -> None:
        if not await progress.follow(conn):
            await asyncio.sleep(0.02)

    def _follower(self, name: str) -> Callable[[Connection], Awaitable[None]]:
        async def break_off(conn: Connection) -> None:
            chance = self.rng.random()
            if chance < 0.05:
                self.tally["crashes"] += 1
                conn.terminate()
            elif chance < 0.1:
                self.tally["crashes"] += 1
                raise Broken

        async def act(conn: Connection) -> None:
            with suppress(Broken):
                page = await follow.step(conn, Keeper(name, break_off=break_off), self.rng.choice((1, 10, 100, 1000)))
                self.tally["pages"] += 1
                if page is None or page.is_last:
                    await asyncio.sleep(0.02)

        return act

    async def _break(self, conn: Connection) -> None:
        """Somebody's connection goes; positions are burned by the thousand."""
        await asyncio.sleep(self.rng.random())
        self.tally["killed backends"] += len(await conn.fetch(KILL_ONE))
        burned = self.rng.randrange(5000)
        await conn.execute(f"SELECT setval('events_position', nextval('events_position') + {burned})")
        self.tally["burned positions"] += burned

    async def check(self) -> None:
        """The log, the blocks, the feed, what each follower has, and progress say the same."""
        async with Database(self.server.dsn).connection(role=None) as owner:
            await self._settle_prepared(owner, "%")
        async with Database(self.server.dsn).connection() as conn:
            for name in self.names:
                await self._so_far(conn, name)
            assert await seal_all(conn)
            rows = await conn.fetch(ALL)
            whole = [(row["block"], row["position"]) for row in rows]
            assert await feed(conn, limit=10_000) == whole
            for name in self.names:
                while (page := await follow.step(conn, Keeper(name), 10_000)) and not page.is_last:
                    pass
                assert await seen(conn, name) == whole
            self._streams(rows)
            positions = {position for _, position in whole}
            assert len(positions) == len(whole)
            assert self.known.certain <= positions
            assert not self.known.undone & positions
            assert await conn.fetchval(NUMBERED)
            while await progress.follow(conn):
                pass
            assert await conn.fetchrow(COUNTED, CAMPAIGN) == await conn.fetchrow(FOLDED, CAMPAIGN)
            await self._verified(conn)
            self.tally["events"] = len(whole)
            self.tally["sealed blocks"] = await conn.fetchval("SELECT count(*) FROM blocks")

    async def _so_far(self, conn: Connection, name: str) -> None:
        """A checkpoint never passes what was not handled, nor is behind what was."""
        at = await checkpoint(conn, name)
        handled = await seen(conn, name)
        if at is None:
            assert handled == []
            return
        due = await conn.fetch(UP_TO, at.block_no, at.position)
        assert handled == [tuple(row) for row in due]

    def _streams(self, rows: list[Connection]) -> None:
        last: dict[tuple[int, int], int] = {}
        for row in rows:
            stream = (row["campaign_id"], row["delivery_id"])
            assert row["version"] == last.get(stream, 0) + 1, stream
            last[stream] = row["version"]

    async def _verified(self, conn: Connection) -> None:
        """The rows are not there, since this log was written by hand; what it says of blocks has to be right."""
        found = await verify(conn, None)
        assert found.unsealed == 0
        told = [d for d in found.differences if "block" in d.expected or "block" in d.actual]
        assert told == []


ALL = """
    SELECT position, campaign_id, delivery_id, version, block_of(epoch, xid) AS block FROM events ORDER BY 5, 1
"""
UP_TO = """
    SELECT b.block, b.position FROM (SELECT block_of(epoch, xid) AS block, position FROM events) b
    WHERE (b.block, b.position) <= ($1, $2) ORDER BY 1, 2
"""
NUMBERED = """
    SELECT count(*) = max(block_no) AND sum(n) = (SELECT count(*) FROM events)
       AND bool_and(n = (SELECT sum(upper(r) - lower(r)) FROM unnest(positions) AS r)) FROM blocks
"""
COUNTED = "SELECT pending, sending FROM progress WHERE campaign_id = $1"
FOLDED = """
    SELECT count(*) FILTER (WHERE l.version % 2 = 1) AS pending, count(*) FILTER (WHERE l.version % 2 = 0) AS sending
    FROM (SELECT max(version) AS version FROM events WHERE campaign_id = $1 AND delivery_id > 0 GROUP BY delivery_id) l
"""
