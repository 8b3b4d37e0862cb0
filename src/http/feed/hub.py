"""The process's one reader of the sealed log: woken by new blocks, it reads once what all streams are fed from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from attrs import define

from ...database import GONE, Connection, Database, close, is_pooled
from ...errors import DataError, UnavailableError
from ...ledger import access
from ...projections import follow, progress
from ...projections.follow import Checkpoint
from ...workers.following import DEAF_LOOK, IDLE_LOOK
from ...workers.link import Backoff
from ...workers.loops import first_of
from .board import Board
from .frames import event_frame
from .ring import Entry, Ring

log = structlog.get_logger(__name__)

PAGE = 1_000
TOUCHED = 20_000
"""Events in a page where nobody wants the events themselves."""

ANSWER_WITHIN = 30.0

_SYSTEM = 0
"""The campaign of events that belong to none: contacts', and the system's, keys among them."""

COUNTED_AGAIN = 0.1
"""Seconds until another look at counts that somebody else is bringing up to date."""


@define
class Wanted:
    """How many streams want what."""

    events: int = 0
    progress: int = 0
    streams: int = 0


class Hub:
    """Reads nothing while there is no stream. Two connections for all of them: one listens, one reads."""

    def __init__(self, database: Database, listen: Database) -> None:
        self.database = database
        self.listen = listen
        self.ring = Ring()
        self.board = Board()
        self.wanted = Wanted()
        self.wake = asyncio.Event()
        """Set when there may be a new block, or somebody who wants one."""
        self.reading = False
        """Whether ring and board are kept up to date; else whoever comes has to wait for the first look."""
        self.age = 0
        """Raised when the log turned out to be another one: no place in it that was handed out means anything."""
        self.ended = False
        self.revoked: frozenset[int] = frozenset()
        """API keys whose streams end: that is in the log, so it is known here as soon as anything is."""
        self._news = asyncio.Event()
        self._dirty: set[int] = set()
        self._conn: Connection | None = None
        self._ear: Connection | None = None
        self._backoff = Backoff()

    @property
    def news(self) -> asyncio.Event:
        """Set once, at the next thing that is new: to be taken before the look at what there is."""
        return self._news

    @contextmanager
    def wanting(self, *, events: bool, progress: bool) -> Iterator[None]:
        """A stream for the time of the block."""
        self.wanted.streams += 1
        self.wanted.events += events
        self.wanted.progress += progress
        self.wake.set()
        try:
            yield
        finally:
            self.wanted.streams -= 1
            self.wanted.events -= events
            self.wanted.progress -= progress

    async def step(self) -> None:
        """Reads to the end where there is anybody to read for, then waits until there may be more."""
        try:
            self.wake.clear()  # before the look, and before connecting: an ear that is lost meanwhile sets it again
            await self._connect()
            again_in = await self._read()
        except (*GONE, UnavailableError) as error:
            log.warning("feed_lost", reason=str(error)[:200])
            await self.close()
            await self._backoff.wait()
            return
        except DataError as error:  # the database was restored to an earlier time under our feet
            log.warning("feed_begins_anew", reason=str(error))
            self.age += 1
            self.reading = False
            again_in = 0.0
            self._tell()
        self._backoff.reset()
        await first_of(self.wake, within=again_in)

    def end(self) -> None:
        """All streams end, and whoever comes is sent away at once."""
        self.ended = True
        self._tell()

    async def close(self) -> None:
        """Gives the connections back."""
        conns, self._conn, self._ear = (self._conn, self._ear), None, None
        await asyncio.gather(*map(close, conns))

    async def _read(self) -> float:
        assert self._conn is not None
        if not (self.wanted.events or self.wanted.progress):
            self.reading = False
            return IDLE_LOOK
        if not self.reading:
            self.ring.reset(await follow.head(self._conn))
            self._dirty.clear()
            self.revoked = await access.revoked(self._conn)
            self.reading = True
            self._tell()
        await self._to_the_end(self._conn)
        if _SYSTEM in self._dirty:
            self._dirty.remove(_SYSTEM)
            self.revoked = await access.revoked(self._conn)
            self._tell()
        counted = await self._count(self._conn)
        return (IDLE_LOOK if self.hears else DEAF_LOOK) if counted else COUNTED_AGAIN

    async def _to_the_end(self, conn: Connection) -> None:
        is_last = False
        while not is_last:
            before = self.ring.end
            is_last = await (self._events(conn) if self.wanted.events else self._touched(conn))
            if self.ring.end != before:
                self._tell()

    async def _events(self, conn: Connection) -> bool:
        page = await follow.read_page(conn, self.ring.end, PAGE)
        places = ((Checkpoint(row["block_no"], row["position"]), row) for row in page.events)
        self.ring.extend((Entry(at, row["campaign_id"], event_frame(row)) for at, row in places), page.checkpoint)
        self._dirty.update(row["campaign_id"] for row in page.events)
        return page.is_last

    async def _touched(self, conn: Connection) -> bool:
        page = await follow.read_touched(conn, self.ring.end, TOUCHED)
        self.ring.reset(page.checkpoint)
        self._dirty.update(page.campaigns)
        return page.is_last

    async def _count(self, conn: Connection) -> bool:
        """The counts of all that something has happened to; False while they are behind what was read."""
        if not self.wanted.progress:
            self._dirty.clear()
        if not self._dirty:
            return True
        followed = Checkpoint(*await progress.followed(conn))
        if followed < self.ring.end:
            while await progress.follow(conn, timeout=ANSWER_WITHIN):  # mostly a worker was faster
                pass
            followed = Checkpoint(*await progress.followed(conn))
        before = self.board.change
        self.board.put(await progress.standing(conn, sorted(self._dirty)))
        if self.board.change != before:
            self._tell()
        if followed < self.ring.end:  # somebody else is at it
            return False
        self._dirty.clear()
        return True

    def _tell(self) -> None:
        """Wakes all streams that wait."""
        told, self._news = self._news, asyncio.Event()
        told.set()

    @property
    def hears(self) -> bool:
        return self._ear is not None and not is_pooled(self._ear)

    async def _connect(self) -> None:
        if self._ear is None or self._ear.is_closed():
            self._ear = await self.listen.connect(label="feed", keepalive=True, session=True)
            self._ear.add_termination_listener(lambda _: self.wake.set())
            if self.hears:
                # Acknowledged before the first look, so that no block falls between.
                channel = await self._ear.fetchval(follow.sql.channel)
                await self._ear.add_listener(channel, lambda *_: self.wake.set())
        if self._conn is None or self._conn.is_closed():
            self._conn = await self.database.connect(label="feed reader", command_timeout=ANSWER_WITHIN)
