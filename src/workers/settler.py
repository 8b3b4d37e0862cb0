"""Records outcomes: handed to the database at once, one flush under way, what arrives meanwhile goes into the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter

import asyncpg
import structlog
from attrs import define, field

from ..database import first_line
from ..ledger import queue
from ..ledger.queue import Outcome, Settled
from . import meters
from .link import Backoff, Link, LinkLost
from .loops import first_of, monotonic

log = structlog.get_logger(__name__)

MOST = 1000
"""Outcomes in one call."""

WITHIN = 30.0

PATIENCE = timedelta(milliseconds=250)
"""How long the outcomes of one campaign wait for its locks, while those of others wait behind them. A pause that waits
for an import's end makes them wait too."""

STUCK_AGAIN = 0.25
"""Seconds after which they are tried again."""

SLOW = 2.0
"""Seconds after which a call that has not answered counts as trouble."""

_campaign = attrgetter("delivery.campaign_id")
_key = attrgetter("delivery.campaign_id", "delivery.delivery_id")

_ABOUT_DATA = ("22", "23", "PL")
"""SQLSTATEs that begin like this blame what was handed over: bad values, broken constraints, transitions refused."""


@define
class _Waiting:
    """Outcomes of one campaign, and a ticket: done when there is nothing left to do about them."""

    campaign_id: int
    outcomes: Sequence[Outcome]
    settled: asyncio.Future[None] = field(factory=lambda: asyncio.get_running_loop().create_future())


class Locked(Exception):  # noqa: N818 - no fault
    """Nothing was recorded: others hold what it needs."""


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
        patience: timedelta = PATIENCE,
    ) -> None:
        self.link = link
        self.on_settled = on_settled
        self.on_trouble = on_trouble
        self.slow = slow
        self.patience = patience
        self._queue: list[_Waiting] = []
        self._stuck: dict[int, float] = {}
        """Campaigns whose locks others hold, and when they are tried again."""
        self._arrived = asyncio.Event()

    @property
    def pending(self) -> int:
        """How many outcomes wait to be committed."""
        return sum(len(waiting.outcomes) for waiting in self._queue)

    async def record(self, outcomes: Sequence[Outcome]) -> None:
        """Returns when the outcomes are committed. They are recorded even if the caller is cancelled meanwhile."""
        waiting = [
            _Waiting(campaign, list(group)) for campaign, group in groupby(sorted(outcomes, key=_key), _campaign)
        ]
        self._queue += waiting
        self._arrived.set()
        for one in waiting:
            await asyncio.shield(one.settled)

    async def step(self) -> None:
        """One flush: all that waits now, campaign by campaign. One that is stuck stays for the next, as it is."""
        batch = await self._flushable()
        outcomes = sorted((o for waiting in batch for o in waiting.outcomes), key=_key)
        for campaign_id, group in groupby(outcomes, _campaign):
            await self._flush(campaign_id, list(group))
        self.on_trouble(False)
        flushed = [waiting for waiting in batch if waiting.campaign_id not in self._stuck]
        gone = {id(waiting) for waiting in flushed}
        # Not before: a flush that is broken off has lost nothing.
        self._queue = [waiting for waiting in self._queue if id(waiting) not in gone]
        for waiting in flushed:
            if not waiting.settled.done():
                waiting.settled.set_result(None)

    async def _flushable(self) -> list[_Waiting]:
        """What waits now, without the campaigns that were stuck a moment ago; waited for."""
        while True:
            self._arrived.clear()
            now = monotonic()
            self._stuck = {campaign_id: at for campaign_id, at in self._stuck.items() if at > now}
            if batch := [waiting for waiting in self._queue if waiting.campaign_id not in self._stuck]:
                return batch
            if self._stuck:
                await first_of(self._arrived, within=min(self._stuck.values()) - now)
            else:
                await self._arrived.wait()

    async def _flush(self, campaign_id: int, outcomes: Sequence[Outcome]) -> None:
        """All or, where its locks are held by others, nothing of one campaign."""
        try:
            await self._settle(campaign_id, outcomes[:MOST], patience=self.patience)
        except Locked:
            self._stuck[campaign_id] = monotonic() + STUCK_AGAIN
            return
        for start in range(MOST, len(outcomes), MOST):
            await self._settle(campaign_id, outcomes[start : start + MOST])

    async def _settle(
        self, campaign_id: int, outcomes: Sequence[Outcome], *, patience: timedelta | None = None
    ) -> None:
        """One call, repeated until it is known to be committed; a repeat is harmless, the fence sees to that."""
        backoff = Backoff()
        while True:
            try:
                settled = await self._call(campaign_id, outcomes, patience)
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

    async def _call(self, campaign_id: int, outcomes: Sequence[Outcome], patience: timedelta | None) -> Settled:
        overdue = asyncio.get_running_loop().call_later(self.slow, self.on_trouble, True)
        try:
            async with self.link.use() as conn:
                try:
                    with meters.timed(meters.SETTLE):
                        return await queue.settle(conn, campaign_id, outcomes, timeout=WITHIN, patience=patience)
                except asyncpg.LockNotAvailableError as error:
                    if patience is None:
                        raise
                    raise Locked from error  # here: the link takes the former for its own end
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
