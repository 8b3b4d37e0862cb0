"""Records outcomes: handed to the database at once, one flush under way, what arrives meanwhile goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

import asyncpg
import structlog
from attrs import define, field

from ..ledger import queue
from ..ledger.queue import Outcome
from .link import Backoff, Link, LinkLost

log = structlog.get_logger(__name__)

MOST = 1000
"""Outcomes in one call."""

WITHIN = 30.0


@define
class _Waiting:
    """Outcomes of one sender, and its ticket: done when they are committed."""

    outcomes: Sequence[Outcome]
    committed: asyncio.Future[None] = field(factory=lambda: asyncio.get_running_loop().create_future())


class Settler:
    """Keeps every outcome until it is committed, however often that has to be tried.

    `on_settled(outcomes)` hears of what was committed; `on_trouble(bool)` whether recording works at present.
    """

    def __init__(
        self, link: Link, *, on_settled: Callable[[Sequence[Outcome]], None], on_trouble: Callable[[bool], None]
    ) -> None:
        self.link = link
        self.on_settled = on_settled
        self.on_trouble = on_trouble
        self._queue: list[_Waiting] = []
        self._flushing = False
        self._arrived = asyncio.Event()

    @property
    def pending(self) -> bool:
        """Whether anything waits to be committed."""
        return bool(self._queue) or self._flushing

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """Returns when the outcomes are committed. They are recorded even if the caller is cancelled meanwhile."""
        waiting = _Waiting(outcomes)
        self._queue.append(waiting)
        self._arrived.set()
        await asyncio.shield(waiting.committed)

    async def step(self) -> None:
        """One flush: all that waits now, campaign by campaign."""
        await self._arrived.wait()
        self._arrived.clear()
        batch, self._queue = self._queue, []
        self._flushing = True
        outcomes = sorted(
            (o for waiting in batch for o in waiting.outcomes),
            key=lambda o: (o.delivery.campaign_id, o.delivery.delivery_id),
        )
        for campaign_id, group in groupby(outcomes, attrgetter("delivery.campaign_id")):
            members = list(group)
            for start in range(0, len(members), MOST):
                await self._settle(campaign_id, members[start : start + MOST])
        for waiting in batch:
            if not waiting.committed.done():
                waiting.committed.set_result(None)
        self._flushing = False

    async def _settle(self, campaign_id: int, outcomes: Sequence[Outcome]) -> None:
        """One call, repeated until it is known to be committed; a repeat is harmless, the fence sees to that."""
        backoff = Backoff()
        while True:
            try:
                async with self.link.use() as conn:
                    settled = await queue.settle(conn, campaign_id, outcomes, timeout=WITHIN)
                break
            except LinkLost as error:
                self.on_trouble(True)
                log.warning("settle_failed", campaign=campaign_id, outcomes=len(outcomes), reason=str(error)[:200])
                await backoff.wait()
            except asyncpg.PostgresError as error:
                if len(outcomes) == 1:
                    # Its row stays under our claim, and becomes an unknown outcome when this worker ends.
                    log.error(
                        "outcome_refused",
                        campaign=campaign_id,
                        delivery=outcomes[0].delivery.delivery_id,
                        type=outcomes[0].type,
                        reason=str(error)[:500],
                    )
                    return
                half = len(outcomes) // 2  # one bad outcome must not hold up its neighbours
                await self._settle(campaign_id, outcomes[:half])
                await self._settle(campaign_id, outcomes[half:])
                return
        self.on_trouble(False)
        if settled.evidence:
            log.warning("late_outcomes", campaign=campaign_id, evidence=settled.evidence)
        self.on_settled(outcomes)
