"""Seals what this process has appended, and drives the follower that counts: woken by appends, never by a clock."""

from __future__ import annotations

import asyncio
import random

import asyncpg
import structlog

from ..database import Connection
from ..ledger import sealing
from ..projections import progress
from . import meters
from .link import Backoff, Link, LinkLost
from .loops import monotonic

log = structlog.get_logger(__name__)

EVERY = 0.1
"""Seconds between two blocks of one process, more or less."""

FOLLOW_FOR = 0.2
"""Seconds for the follower between two blocks; a million events take longer, and it goes on after the next one."""

REFUSED_AGAIN = 30.0

WITHIN = 60.0

LAST_WITHIN = 5.0
"""Seconds for all that at the end of a process."""


class Sealer:
    """`note` says that something may have been appended. On a connection of its own: it delays no claim, no settle."""

    def __init__(self, link: Link, *, every: float = EVERY) -> None:
        self.link = link
        self.every = every
        self._noted = asyncio.Event()
        self._next_at = 0.0
        self._backoff = Backoff()

    def note(self) -> None:
        """Something was appended, or may have been: the answer is not always known."""
        self._noted.set()

    async def step(self) -> None:
        """One block of what there is, not sooner than `every` after the last, and the follower after it."""
        await self._noted.wait()
        await asyncio.sleep(max(self._next_at - monotonic(), 0.0))
        self._next_at = monotonic() + self.every * random.uniform(0.8, 1.6)  # several processes share the work
        self._noted.clear()  # before the look
        try:
            async with self.link.use() as conn:
                done = await self._seal_and_follow(conn)
        except LinkLost as error:
            self._noted.set()
            log.warning("seal_failed", reason=str(error)[:200])
            await self._backoff.wait()
        except asyncpg.PostgresError as error:  # a log restored from a dump, say: nothing that passes by itself
            self._noted.set()
            self._next_at = monotonic() + REFUSED_AGAIN
            log.error("seal_refused", reason=str(error)[:500])
        else:
            self._backoff.reset()
            if not done:
                self._noted.set()

    async def finish(self) -> None:
        """What was appended is sealed and followed before the process leaves, unless that takes too long."""
        until = monotonic() + LAST_WITHIN
        try:
            async with self.link.use() as conn:
                await sealing.seal_all(conn, within=LAST_WITHIN)
                while (followed := await progress.follow(conn, timeout=LAST_WITHIN)) != 0 and monotonic() < until:
                    if followed is None:  # somebody else is at it, who may have looked before our block
                        await asyncio.sleep(sealing.AGAIN)
        except (LinkLost, asyncpg.PostgresError) as error:
            log.warning("left_unsealed", reason=str(error)[:200])

    async def _seal_and_follow(self, conn: Connection) -> bool:
        """Whether there is no more to do: nobody else was at it, and the follower has caught up."""
        with meters.timed(meters.SEAL):
            sealed = await sealing.seal(conn, timeout=WITHIN) is not None
        until = monotonic() + FOLLOW_FOR
        while followed := await progress.follow(conn, timeout=WITHIN):
            if monotonic() >= until:
                return False
        return sealed and followed is not None
