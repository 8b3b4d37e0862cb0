"""Who a worker is: its id, the session lock that proves it alive, and the ear for notifications, on one connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import structlog

from ..config import redact
from ..database import GONE, Blocks, Connection, Database, close, fetch_one, first_line, is_pooled, process_label
from ..database.migrate import check_version, installed_version
from ..errors import ConfigurationError, UnavailableError
from ..ledger import queue
from .link import Backoff, Link, LinkLost
from .loops import first_of

log = structlog.get_logger(__name__)

sql = Blocks("postledger.workers", "session.sql")

ANSWER_WITHIN = 10.0
"""Seconds for a call on the session that names no time of its own."""

PROBE_WITHIN = 2.0
"""Seconds in which a worker must hear its own probe."""

FALLBACK_SWEEP = 2.0
"""Seconds between sweeps of a worker that hears no notifications."""

STEADY = 5.0
"""Seconds a session must have lasted for its loss to be answered at once; what flaps waits longer each time."""

IDLE_SWEEP = 30.0
"""Seconds between heartbeats of an idle worker: the stated bound when nothing wakes it."""

VERSION_EVERY = 60.0
"""Seconds between looks at the schema's version of a worker that is not told when it changes."""

NEVER = 1e9


class Session:
    """The connection that listens, holds the worker's lock and asks for permits.

    The order on each connect is what loses no wake-up: LISTEN acknowledged, lock taken, session number raised, and only
    then `wake` is set, so that the catch-up query comes after all three.

    Behind a pooler there is nothing to listen with and no lock that would prove anything: then the worker sweeps, and
    lives by its lease.
    """

    def __init__(
        self,
        database: Database,
        helper: Link,
        *,
        on_buried: Callable[[], None],
        on_unfit: Callable[[], None] = lambda: None,
    ) -> None:
        self.database = database
        """The server's own address, where the helper's is a pooler."""
        self.helper = helper
        """Another connection: a probe must come from elsewhere to prove anything."""
        self.on_buried = on_buried
        self.on_unfit = on_unfit
        self.unfit: ConfigurationError | None = None
        """Why this program cannot go on with this database: it has been upgraded, or something is set up wrong."""
        self.wake = asyncio.Event()
        self.woken_at: float | None = None
        """Monotonic time of the first notification that nobody has answered yet, to measure by."""
        self.worker = 0
        self.number = 0
        self.since = 0.0
        """Monotonic time at which this session began."""
        self.hears = True
        self.lease_only = False
        """Whether others judge this worker by its lease alone, since its lock proves nothing."""
        self._conn: Connection | None = None
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._schema_changed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._probe = asyncio.Event()
        self._closing = False
        self._backoff = Backoff()
        self._attempted_at = 0.0
        self._told_unheard = False

    @property
    def sweep_in(self) -> float:
        """Seconds an idle worker may sleep at most."""
        return IDLE_SWEEP if self.hears else FALLBACK_SWEEP

    @property
    def is_open(self) -> bool:
        """Whether there is a connection just now."""
        return self._conn is not None

    async def open(self) -> None:
        """Enlists and connects. Raises PostledgerError if that cannot be done at once."""
        async with self.database.connection(label="enlist") as conn:
            self.worker = await conn.fetchval(queue.sql.enlist, process_label("worker"))
        await self._connect()

    async def step(self) -> None:
        """Waits until the connection is lost, and makes another; or until the schema has changed, and looks at it."""
        await first_of(self._lost, self._schema_changed, within=NEVER if self.hears else VERSION_EVERY)
        try:
            if self._lost.is_set():
                await self._reconnect()
            else:
                await self._look_at_version()
        except ConfigurationError as error:
            log.error("unfit", worker=self.worker, reason=str(error))
            self.unfit = error
            self.on_unfit()
            await asyncio.sleep(NEVER)  # what is under way ends; nothing more is to be had here

    async def _reconnect(self) -> None:
        if time.monotonic() - self._attempted_at > STEADY:
            self._backoff.reset()
        else:
            await self._backoff.wait()
        try:
            await self._connect()
        except (*GONE, UnavailableError, LinkLost) as error:
            log.warning("session_lost", worker=self.worker, reason=first_line(error))
        finally:
            self._attempted_at = time.monotonic()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """The connection for one call, waiting for it if it is being made. Raises LinkLost when it breaks."""
        await self._ready.wait()
        async with self._turn:
            conn = self._conn
            if conn is None:
                raise LinkLost("the session's connection is gone")
            try:
                yield conn
            except GONE as error:
                self._drop(conn)
                raise LinkLost(first_line(error)) from error
            except asyncio.CancelledError:
                self._drop(conn)
                raise

    async def close(self) -> None:
        """Leaves: the worker is ended in the books, its lock free."""
        self._closing = True
        conn, self._conn = self._conn, None
        self._ready.clear()
        if conn is not None and not conn.is_closed():
            try:
                await conn.fetchval(queue.sql.leave, self.worker, timeout=2)
            except GONE as error:
                log.warning("leave_failed", worker=self.worker, reason=first_line(error))
        await close(conn)

    def disconnect(self) -> None:
        """Gives the connection up; `run` makes a new one."""
        if self._conn is not None:
            self._drop(self._conn)

    def _drop(self, conn: Connection) -> None:
        conn.terminate()
        self._on_termination(conn)

    def _on_termination(self, conn: Any) -> None:
        if conn is self._conn and not self._closing:
            self._conn = None
            self._ready.clear()
            self._lost.set()

    async def _connect(self) -> None:
        conn = await self.database.connect(
            label=f"worker {self.worker} session", keepalive=True, session=True, command_timeout=ANSWER_WITHIN
        )
        try:
            await self._check(conn)
            self.lease_only = is_pooled(conn)
            self.hears = not self.lease_only and await self._listen(conn)
            if not self.hears:
                self.lease_only = True
                await self._enter(conn)
                self._tell_unheard(conn)
        except BaseException:
            conn.terminate()
            raise
        self._conn = conn
        self.since = time.monotonic()
        self._lost.clear()
        self._ready.set()
        self.wake.set()
        conn.add_termination_listener(self._on_termination)
        if conn.is_closed():  # while we listened for the probe: nobody was told
            self._on_termination(conn)

    async def _check(self, conn: Connection) -> None:
        """Raises ConfigurationError where this program and this database do not go together."""
        check_version(await installed_version(conn))
        foreign = await conn.fetchval(sql.foreign_epoch)
        if foreign is not None:
            raise ConfigurationError(
                f"{foreign}: if this is the database that sends from now on, run 'postledger migrate --new-epoch'"
            )
        if self.database != self.helper.database:
            await self._check_place(conn)

    async def _check_place(self, conn: Connection) -> None:
        """Raises UnavailableError: in a failover the two ways may lead apart for a while."""
        async with self.helper.use() as other:
            there = await fetch_one(other, sql.place, timeout=10)
        here = await fetch_one(conn, sql.place)  # later: it cannot be of a server that has been stopped meanwhile
        if here != there:
            raise UnavailableError(
                f"--listen {redact(self.database.dsn)} is another database than --database: name the same one there, "
                "without the pooler"
            )

    async def _look_at_version(self) -> None:
        self._schema_changed.clear()
        try:
            async with self.use() as conn:
                check_version(await installed_version(conn))
        except LinkLost as error:
            log.warning("session_lost", worker=self.worker, reason=str(error)[:200])

    def _tell_unheard(self, conn: Connection) -> None:
        if not self._told_unheard:
            remedy = "name the server itself with --listen" if is_pooled(conn) else "see 'postledger doctor'"
            log.warning("notifications_unheard", worker=self.worker, sweep_in=FALLBACK_SWEEP, remedy=remedy)
        self._told_unheard = True

    async def _listen(self, conn: Connection) -> bool:
        """Listens, then takes the lock; whether notifications arrive."""
        channels = await fetch_one(conn, queue.sql.wake_channels, self.worker)
        await conn.add_listener(channels["everybody"], lambda *_: self._woken())
        await conn.add_listener(await conn.fetchval(sql.schema_channel), lambda *_: self._schema_changed.set())
        await self._enter(conn)
        return await self._hear_probe(conn, channels["own"])

    async def _enter(self, conn: Connection) -> None:
        """Takes the worker's lock and a new session number; a worker declared dead meanwhile becomes a new one."""
        number = await self._lock(conn)
        while number is None:
            log.warning("declared_dead", worker=self.worker)
            self.on_buried()
            self.worker = await conn.fetchval(queue.sql.enlist, process_label("worker"), timeout=10)
            number = await self._lock(conn)
        self.number = number

    async def _lock(self, conn: Connection) -> int | None:
        if not is_pooled(conn):
            await conn.fetchval(queue.sql.lock_worker, self.worker, timeout=30)
        number: int | None = await conn.fetchval(queue.sql.relock, self.worker, self.lease_only, timeout=10)
        return number

    def _woken(self) -> None:
        if self.woken_at is None:
            self.woken_at = time.monotonic()
        self.wake.set()

    async def _hear_probe(self, conn: Connection, channel: str) -> bool:
        self._probe.clear()
        await conn.add_listener(channel, lambda *_: self._probe.set())
        try:
            async with self.helper.use() as other:
                await other.fetchval(queue.sql.notify, channel, timeout=10)
            await asyncio.wait_for(self._probe.wait(), PROBE_WITHIN)
        except (TimeoutError, asyncpg.ProgramLimitExceededError):  # the latter: the server's notification queue is full
            return False
        return True
