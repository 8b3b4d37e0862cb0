"""What there is to do, from one look at the database to the next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import timedelta

from ..ledger.queue import Work
from .loops import monotonic

AGE = 1.0
"""Seconds for which a look is good."""

NEVER = float("inf")


class Plan:
    """Campaigns with work, when more falls due, and which ones are left alone for a while."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.rates: dict[int, str | None] = {}
        """Campaigns with rows to claim, and the rate of each one's sender."""
        self.priorities: dict[int, int] = {}
        self.cancelled: list[int] = []
        """Campaigns with rows that only need to be told."""
        self._ending: set[int] = set()
        """Campaigns with nothing more to claim: when nothing of theirs is held either, they may be at their end."""
        self._aside: dict[int, float] = {}
        """Campaigns that made trouble, and when they are tried again."""
        self._renewed_at = -NEVER
        self._due_at = NEVER

    def is_old(self, held: Collection[int]) -> bool:
        """Whether another look is due; `held` are the campaigns of which this worker has rows in hand."""
        now = self.clock()
        if not self.rates or now - self._renewed_at > AGE or now >= self._due_at:
            return True
        return not self._ending.issubset(held)

    def renew(self, work: Work) -> None:
        """What a look has found."""
        self._renewed_at, self._due_at = self.clock(), NEVER
        self.priorities = dict(zip(work.campaigns, work.priorities, strict=True))
        rates = dict(zip(work.campaigns, work.rates, strict=True))
        self.rates = {campaign_id: rates[campaign_id] for campaign_id in self.not_aside(work.campaigns)}
        self.cancelled = self.not_aside(work.cancelled)
        self._ending.clear()
        self.falls_due(work.due_in)
        self.falls_due(work.wake_in)

    def forget(self) -> None:
        """The next step looks anew."""
        self.rates = {}

    def falls_due(self, due_in: timedelta | None) -> None:
        """Another look makes sense then, if not before."""
        if due_in is not None:
            self._due_at = min(self._due_at, self.clock() + due_in.total_seconds())

    @property
    def due_in(self) -> float:
        """Seconds until another look is due by itself."""
        return max(self._due_at - self.clock(), 0.0)

    def is_empty(self, campaign_id: int) -> None:
        """Nothing more is due in this campaign."""
        del self.rates[campaign_id]
        self._ending.add(campaign_id)

    def set_aside(self, campaign_id: int, again_in: float) -> None:
        """It makes trouble, and must not hold up the others."""
        self._aside[campaign_id] = self.clock() + again_in
        self.rates.pop(campaign_id, None)
        self.cancelled = self.not_aside(self.cancelled)

    def forgive(self) -> None:
        """Perhaps somebody has mended what made trouble."""
        self._aside.clear()

    def not_aside(self, campaigns: Iterable[int]) -> list[int]:
        """Without those that made trouble a moment ago; they fall due when it is their turn again."""
        now = self.clock()
        self._aside = {campaign: at for campaign, at in self._aside.items() if at > now}
        self._due_at = min(self._due_at, *self._aside.values(), NEVER)
        return [campaign for campaign in campaigns if campaign not in self._aside]
