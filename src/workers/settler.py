"""Records outcomes: handed to the database at once, one flush under way, what arrives meanwhile goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

import asyncpg
import structlog
from attrs import define, field

from ..database import first_line
from ..ledger import queue
from ..ledger.queue import Outcome, Settled
from .link import Backoff, Link, LinkLost

log = structlog.get_logger(__name__)

MOST = 1000
"""Outcomes in one call."""

WITHIN = 30.0

SLOW = 2.0
"""Seconds after which a call that has not answered counts as trouble."""

_ABOUT_DATA = ("22", "23", "PL")
"""SQLSTATEs that begin like this blame what was handed over: bad values, broken constraints, transitions refused."""


@define
class _Waiting:
    """Outcomes of one sender, and its ticket: done when there is nothing left to do about them."""

    outcomes: Sequence[Outcome]
    settled: asyncio.Future[None] = field(factory=lambda: asyncio.get_running_loop().create_future())


class Settler:
    """Keeps every outcome until it is committed, however often that has to be tried.

    `on_settled(outcomes)` hears of what was committed; `on_trouble(bool)` whether recording works at present.
    """

    def __init__(
        self,
        link: Link,
        *,
        on_settled: Callable[[Sequence[Outcome]], None],
        on_trouble: Callable[[bool], None],
        slow: float = SLOW,
    ) -> None:
        self.link = link
        self.on_settled = on_settled
        self.on_trouble = on_trouble
        self.slow = slow
        self._queue: list[_Waiting] = []
        self._arrived = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many outcomes wait to be committed."""
        return sum(len(waiting.outcomes) for waiting in self._queue)

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """Returns when the outcomes are committed. They are recorded even if the caller is cancelled meanwhile."""
        waiting = _Waiting(outcomes)
        self._queue.append(waiting)
        self._arrived.set()
        await asyncio.shield(waiting.settled)

    async def step(self) -> None:
        """One flush: all that waits now, campaign by campaign."""
        await self._arrived.wait()
        batch = list(self._queue)
        outcomes = sorted(
            (o for waiting in batch for o in waiting.outcomes),
            key=lambda o: (o.delivery.campaign_id, o.delivery.delivery_id),
        )
        for campaign_id, group in groupby(outcomes, attrgetter("delivery.campaign_id")):
            members = list(group)
            for start in range(0, len(members), MOST):
                await self._settle(campaign_id, members[start : start + MOST])
        self.on_trouble(False)
        del self._queue[: len(batch)]  # not before: a flush that is broken off has lost nothing
        if not self._queue:
            self._arrived.clear()
        for waiting in batch:
            if not waiting.settled.done():
                waiting.settled.set_result(None)

    async def _settle(self, campaign_id: int, outcomes: Sequence[Outcome]) -> None:
        """One call, repeated until it is known to be committed; a repeat is harmless, the fence sees to that."""
        backoff = Backoff()
        while True:
            try:
                settled = await self._call(campaign_id, outcomes)
                break
            except LinkLost as error:
                reason = first_line(error)
            except asyncpg.PostgresError as error:
                reason = first_line(error)
                if (error.sqlstate or "").startswith(_ABOUT_DATA):
                    await self._settle_apart(campaign_id, outcomes, reason)
                    return
            self.on_trouble(True)
            log.warning("settle_failed", campaign=campaign_id, outcomes=len(outcomes), reason=reason)
            await backoff.wait()
        self.on_trouble(False)
        if settled.evidence:
            log.warning("late_outcomes", campaign=campaign_id, evidence=settled.evidence)
        self.on_settled(outcomes)

    async def _call(self, campaign_id: int, outcomes: Sequence[Outcome]) -> Settled:
        overdue = asyncio.get_running_loop().call_later(self.slow, self.on_trouble, True)
        try:
            async with self.link.use() as conn:
                return await queue.settle(conn, campaign_id, outcomes, timeout=WITHIN)
        finally:
            overdue.cancel()

    async def _settle_apart(self, campaign_id: int, outcomes: Sequence[Outcome], reason: str) -> None:
        """One bad outcome must not hold up its neighbours; what cannot be recorded as it is has an unknown outcome."""
        if len(outcomes) > 1:
            half = len(outcomes) // 2
            await self._settle(campaign_id, outcomes[:half])
            await self._settle(campaign_id, outcomes[half:])
            return
        (outcome,) = outcomes
        told = {"campaign": campaign_id, "delivery": outcome.delivery.delivery_id, "type": outcome.type}
        instead = _unrecorded(outcome)
        if outcome == instead:
            # Its row stays under our claim, and has an unknown outcome when this worker ends.
            log.error("outcome_given_up", **told, reason=reason)
            return
        log.error("outcome_refused", **told, reason=reason)
        await self._settle(campaign_id, [instead])


def _unrecorded(outcome: Outcome) -> Outcome:
    """The provider may have it, and what it said cannot be written down."""
    delivery = outcome.delivery
    return Outcome(delivery, "OutcomeUnknown", {"attempt": delivery.attempt, "reason": "not_recorded"})
