"""Drives a follower of the sealed log in a process of its own: woken by new blocks."""

from __future__ import annotations

import asyncio

import structlog

from ..database import GONE, Connection, Database, close, is_pooled
from ..errors import UnavailableError
from ..projections import follow
from ..projections.follow import Follower
from .link import Backoff
from .loops import first_of

log = structlog.get_logger(__name__)

IDLE_LOOK = 30.0
"""Seconds between looks when nothing wakes us."""

DEAF_LOOK = 2.0
"""The same behind a pooler, where nothing is heard."""

STAND_BY = 2.0
"""Seconds between looks while another process drives this follower."""


class Following:
    """`listen` is where notifications are heard, if not at `database` itself.

    LISTEN is acknowledged before the first look, so no block falls between.
    """

    def __init__(
        self, database: Database, follower: Follower, *, listen: Database | None = None, limit: int = follow.PAGE
    ) -> None:
        self.database = database
        self.follower = follower
        self.listen = listen or database
        self.limit = limit
        self.wake = asyncio.Event()
        """Set when there may be a new block."""
        self._conn: Connection | None = None
        self._ear: Connection | None = None
        self._backoff = Backoff()

    async def step(self) -> None:
        """Reads to the end, then waits until there may be more.

        What the follower raises passes: nothing of that page has happened, and the next step begins with it again.
        """
        try:
            self.wake.clear()  # before the look, and before connecting: an ear that is lost meanwhile sets it again
            await self._connect()
            again_in = await self._to_the_end()
        except (*GONE, UnavailableError) as error:
            log.warning("follower_lost", follower=self.follower.name, reason=str(error)[:200])
            await self.close()
            await self._backoff.wait()
            return
        self._backoff.reset()
        await first_of(self.wake, within=again_in)

    async def close(self) -> None:
        """Gives the connections back."""
        conns, self._conn, self._ear = (self._conn, self._ear), None, None
        await asyncio.gather(*map(close, conns))

    async def _to_the_end(self) -> float:
        assert self._conn is not None
        while (page := await follow.step(self._conn, self.follower, self.limit)) is not None:
            if page.is_last:
                return IDLE_LOOK if self._hears else DEAF_LOOK
        return STAND_BY

    @property
    def _hears(self) -> bool:
        return self._ear is not None and not is_pooled(self._ear)

    async def _connect(self) -> None:
        label = f"follower {self.follower.name}"
        if self._ear is None or self._ear.is_closed():
            self._ear = await self.listen.connect(label=label, keepalive=True, session=True)
            self._ear.add_termination_listener(lambda _: self.wake.set())
            if self._hears:
                channel = await self._ear.fetchval(follow.sql.channel)
                await self._ear.add_listener(channel, lambda *_: self.wake.set())
        if self._conn is None or self._conn.is_closed():
            self._conn = await self.database.connect(label=label)
