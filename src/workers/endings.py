"""Ends campaigns whose rows have all ended, beside the loop that claims: the proof counts every row of a huge one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg
import structlog

from ..ledger import queue
from .link import Link, LinkLost

log = structlog.get_logger(__name__)

LOCKED_AGAIN = 0.5
"""Seconds after which the end is tried again where somebody adds people to the campaign."""

FAULTY = 2.0
"""The same where it made trouble."""

WITHIN = 300.0


class Endings:
    """`on_ended(campaign_id, again_in)` hears of each try; `again_in`: seconds until another makes sense, or None."""

    def __init__(self, link: Link, *, on_ended: Callable[[int, float | None], None]) -> None:
        self.link = link
        self.on_ended = on_ended
        self.under_way: dict[int, asyncio.Task[None]] = {}

    def begin(self, campaign_id: int) -> None:
        """Returns at once; a campaign whose end is being tried already is left alone."""
        if campaign_id not in self.under_way:
            self.under_way[campaign_id] = asyncio.create_task(self._try(campaign_id), name=f"end of {campaign_id}")

    async def close(self) -> None:
        """Breaks off what is under way: who comes next will find it."""
        tries = list(self.under_way.values())
        for one in tries:
            one.cancel()
        await asyncio.gather(*tries, return_exceptions=True)

    async def _try(self, campaign_id: int) -> None:
        again_in: float | None = None
        try:
            again_in = await self._finish(campaign_id)
        except LinkLost as error:
            log.warning("finish_failed", campaign=campaign_id, reason=str(error))
            again_in = LOCKED_AGAIN
        except Exception:
            log.exception("campaign_failed", campaign=campaign_id)
            again_in = FAULTY
        finally:
            del self.under_way[campaign_id]
            self.on_ended(campaign_id, again_in)

    async def _finish(self, campaign_id: int) -> float | None:
        async with self.link.use() as conn:
            try:
                finished = await conn.fetchval(queue.sql.try_finish, campaign_id, timeout=WITHIN)
            except asyncpg.LockNotAvailableError:  # here: the link takes it for its own end
                return LOCKED_AGAIN
        if finished:
            log.info("campaign_finished", campaign=campaign_id)
        return None
