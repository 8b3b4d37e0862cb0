"""Ends campaigns whose rows have all ended, beside the loop that claims: the proof counts every row of a huge one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import structlog

from ..ledger import queue
from .link import Link, LinkLost

log = structlog.get_logger(__name__)

AGAIN = 0.5
"""Seconds after which the end is tried again where somebody adds people to the campaign, or the database is away."""

FAULTY = 2.0
"""Seconds for which a campaign is left alone whose end made trouble."""

WITHIN = 300.0


class Endings:
    """`on_fault(campaign_id, again_in)` hears of a campaign whose end made trouble; `on_ended()` of each end."""

    def __init__(self, link: Link, *, on_fault: Callable[[int, float], None], on_ended: Callable[[], None]) -> None:
        self.link = link
        self.on_fault = on_fault
        self.on_ended = on_ended
        self.under_way: dict[int, asyncio.Task[None]] = {}

    def begin(self, campaign_id: int) -> None:
        """Returns at once; a campaign whose end is being tried already is left alone."""
        if campaign_id not in self.under_way:
            self.under_way[campaign_id] = asyncio.create_task(self._end(campaign_id), name=f"end of {campaign_id}")

    async def close(self) -> None:
        """Breaks off what is under way: who comes next will find it."""
        ends = list(self.under_way.values())
        for one in ends:
            one.cancel()
        await asyncio.gather(*ends, return_exceptions=True)

    async def _end(self, campaign_id: int) -> None:
        try:
            while not await self._tried(campaign_id):  # noqa: ASYNC110 - others hold its lock
                await asyncio.sleep(AGAIN)
        except Exception:
            log.exception("campaign_failed", campaign=campaign_id)
            self.on_fault(campaign_id, FAULTY)
        finally:
            del self.under_way[campaign_id]
            self.on_ended()

    async def _tried(self, campaign_id: int) -> bool:
        """Whether the question was answered: it has ended now, or is not at its end after all."""
        try:
            async with self.link.use() as conn:
                try:
                    finished = await conn.fetchval(queue.sql.try_finish, campaign_id, timeout=WITHIN)
                except asyncpg.LockNotAvailableError:  # here: the link takes it for its own end
                    return False
        except LinkLost as error:
            log.warning("finish_failed", campaign=campaign_id, reason=str(error))
            return False
        if finished:
            log.info("campaign_finished", campaign=campaign_id)
        return True
