"""Writes down what readers do without making them wait: many at a time, as much as memory is set aside for."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import asyncpg
import structlog

from ...database import first_line
from ...ledger import readers
from ...ledger.readers import Engagement
from ...workers.link import Backoff, Link, LinkLost

log = structlog.get_logger(__name__)

MOST = 20_000
"""Pictures and clicks that wait while the database is away; what comes beyond that is counted and not kept."""

PAGE = 500

WITHIN = 10.0
"""Seconds for one call."""

TELL_EVERY = 60.0


class Recorder:
    """A click is led on at once, and written down a moment later: if the machine dies in between, it is not."""

    def __init__(self, link: Link, *, on_noted: Callable[[], None], most: int = MOST) -> None:
        self.link = link
        self.on_noted = on_noted
        self.most = most
        self.dropped = 0
        self._waiting: deque[Engagement] = deque()
        self._arrived = asyncio.Event()
        self._backoff = Backoff()
        self._told_at = -TELL_EVERY

    @property
    def waiting(self) -> int:
        """How many are not written down yet."""
        return len(self._waiting)

    def note(self, seen: Engagement) -> None:
        """Never waits."""
        if len(self._waiting) >= self.most:
            self.dropped += 1
            self._tell()
            return
        self._waiting.append(seen)
        self._arrived.set()

    async def step(self) -> None:
        """One call for all that waits, a page at most; what could not be written down stays."""
        await self._arrived.wait()
        self._arrived.clear()
        page = [self._waiting[place] for place in range(min(PAGE, len(self._waiting)))]
        if not page:
            return
        try:
            await self._write(page)
        except LinkLost as error:
            log.warning("engagement_waits", waiting=self.waiting, reason=str(error)[:200])
            self._arrived.set()
            await self._backoff.wait()
            return
        self._backoff.reset()
        for _ in page:
            self._waiting.popleft()
        if self._waiting:
            self._arrived.set()

    async def finish(self, *, within: float = 5.0) -> None:
        """What waits is written down before the process leaves, unless that takes too long."""
        try:
            async with asyncio.timeout(within):
                while self._waiting:
                    self._arrived.set()
                    await self.step()
        except TimeoutError:
            log.warning("engagement_lost", lost=self.waiting)

    async def _write(self, page: list[Engagement]) -> None:
        try:
            async with self.link.use() as conn:
                if await readers.note(conn, page, timeout=WITHIN):
                    self.on_noted()
        except asyncpg.PostgresError as error:  # nothing that passes by itself, and it must not hold up the others
            log.error("engagement_refused", refused=len(page), reason=first_line(error))

    def _tell(self) -> None:
        now = time.monotonic()
        if now - self._told_at >= TELL_EVERY:
            self._told_at = now
            log.error("engagement_dropped", dropped=self.dropped, most=self.most)
