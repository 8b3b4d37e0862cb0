"""Wakes workers for what requests have committed: the first at once, after that at most one in 10 ms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import structlog
from aiohttp import web

from ..database import Blocks
from ..workers.link import Backoff, Link, LinkLost
from ..workers.loops import forever, monotonic
from .keys import DATABASE

log = structlog.get_logger(__name__)

sql = Blocks("postledger.http", "waking.sql")

EVERY = 0.01
"""Seconds between two: all commits that notify run one after the other in a server, so there must not be many."""

WITHIN = 5.0


class Waker:
    """`note` after a commit. On a connection of its own; what it fails to say, the workers' heartbeat finds."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.sent = 0
        """How many went out."""
        self._noted = asyncio.Event()
        self._next_at = 0.0
        self._backoff = Backoff()

    def note(self) -> None:
        """Something is due that was committed."""
        self._noted.set()

    async def step(self) -> None:
        """One notification for all that was noted before it."""
        await self._noted.wait()
        await asyncio.sleep(max(self._next_at - monotonic(), 0.0))
        self._next_at = monotonic() + EVERY
        self._noted.clear()  # before the call: what is noted while it is under way may have come too late for it
        try:
            async with self.link.use() as conn:
                await conn.execute(sql.wake, timeout=WITHIN)
        except LinkLost as error:
            self._noted.set()
            log.warning("wake_failed", reason=str(error)[:200])
            await self._backoff.wait()
        except asyncpg.PostgresError as error:
            log.warning("wake_refused", reason=str(error)[:200])
        else:
            self.sent += 1
            self._backoff.reset()


WAKER: web.AppKey[Waker] = web.AppKey("waker", Waker)
"""Told by `note()` after a commit that made something due."""


async def waking(app: web.Application) -> AsyncIterator[None]:
    """A waker for the time of the service."""
    link = Link(app[DATABASE], "http wakes")
    app[WAKER] = waker = Waker(link)
    loop = asyncio.ensure_future(forever(waker.step, "http waker"))
    yield
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await link.close()
