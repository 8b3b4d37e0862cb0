"""Looks again for the deliveries of feedback that came before they could be found."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import structlog

from ...database import first_line
from ...ledger import feedback
from ...workers.link import Backoff, Link, LinkLost
from ...workers.loops import first_of, monotonic

log = structlog.get_logger(__name__)

LOOK_EVERY = 300.0
"""Seconds between looks when nothing is known to be due: another process may have left something."""

FORGET_EVERY = 3600.0

PAGE = 500

WITHIN = 30.0


class Linker:
    """Asks the database when the next look is due, and is idle until then."""

    def __init__(self, link: Link, *, on_appended: Callable[[], None]) -> None:
        self.link = link
        self.on_appended = on_appended
        self._woken = asyncio.Event()
        self._next_at = 0.0
        self._forget_at = 0.0
        self._backoff = Backoff()

    def wake(self) -> None:
        """Something has come that has no delivery yet."""
        self._next_at = min(self._next_at, monotonic() + 1.0)
        self._woken.set()

    async def step(self) -> None:
        """One look, when it is due."""
        await first_of(self._woken, within=self._next_at - monotonic())
        self._woken.clear()
        if monotonic() < self._next_at:
            return
        try:
            async with self.link.use() as conn:
                linked = await feedback.link(conn, PAGE, timeout=WITHIN)
                if monotonic() >= self._forget_at:
                    more = await feedback.forget(conn, PAGE) == PAGE
                    self._forget_at = monotonic() + (1.0 if more else FORGET_EVERY)
        except (LinkLost, asyncpg.PostgresError) as error:
            log.warning("feedback_not_linked", reason=first_line(error))
            await self._backoff.wait()
            return
        self._backoff.reset()
        if linked.linked or linked.given_up:
            log.info("feedback_linked", linked=linked.linked, given_up=linked.given_up)
        if linked.appended:
            self.on_appended()
        due_in = LOOK_EVERY if linked.due_in is None else linked.due_in.total_seconds()
        self._next_at = min(monotonic() + min(due_in, LOOK_EVERY), max(self._forget_at, monotonic()))
