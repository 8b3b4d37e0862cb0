"""A sender's rate as one worker spends it: a piece of the sender's time, in small portions as they fall due."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from math import floor

from ..ledger.queue import Lease
from .loops import monotonic

PORTION = 0.1
"""Seconds' worth of mails that may begin together: a claim for each single one would cost more than it spares."""

KEPT = 2
"""Portions that may wait for a slot; what waits longer is lost, or it would leave all at once."""

LONGEST = 1.0
"""Seconds of a sender's time that a worker asks for, once it has shown that it uses them."""

NEVER = float("inf")
_EPSILON = 1e-6


class Tokens:
    """What one worker may begin. `wants`, then `take` the lease; `ready`, then `spend`."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self._starts_at = 0.0
        self._ends_at = 0.0
        self._granted = 0
        self._portion = 1
        self._portion_in = PORTION
        self._gone = 0
        """Spent or lost."""
        self._used = 0
        self._length = 0.0
        self._ask_at = -NEVER

    def wants(self) -> timedelta | None:
        """How much of the sender's time to ask for; None: nothing just now.

        It grows while what was leased is used up: a worker with little to send must not hold what others could use.
        """
        now = self.clock()
        if self._lasts(now) or now < self._ask_at:
            return None
        return timedelta(seconds=self._next_length())

    def take(self, lease: Lease) -> None:
        """The answer to what was wanted."""
        now = self.clock()
        if not lease.granted or lease.each is None:
            self._ask_at = now + (0.0 if lease.retry_in is None else lease.retry_in.total_seconds())
            return
        self._length = self._next_length()
        self._starts_at = now + (lease.starts_in or 0.0)
        self._ends_at = self._starts_at + lease.granted * lease.each
        self._granted = lease.granted
        self._portion = max(1, round(PORTION / lease.each))
        self._portion_in = self._portion * lease.each
        self._gone = self._used = 0
        self._ask_at = -NEVER

    def ready(self) -> int:
        """How many may begin now."""
        now = self.clock()
        if not self._lasts(now):
            return 0
        due = self._due(now)
        self._gone = max(self._gone, due - KEPT * self._portion)
        return due - self._gone

    def ready_in(self) -> float:
        """Seconds until more may begin, or until it is time to ask."""
        now = self.clock()
        if not self._lasts(now):
            return max(self._ask_at - now, 0.0)
        if now < self._starts_at:
            return self._starts_at - now
        if self._due(now) >= self._granted:
            return self._ends_at - now
        return self._starts_at + self._portions(now) * self._portion_in - now

    def spend(self, count: int) -> None:
        """So many begin."""
        self._gone += count
        self._used += count

    def _next_length(self) -> float:
        used_up = 0 < self._granted <= self._used
        return min(self._length * 2, LONGEST) if used_up else PORTION

    def _lasts(self, now: float) -> bool:
        """A lease that is used up is over; what begins next is asked for, and begins when its turn has come."""
        return now < self._ends_at - _EPSILON and self._gone < self._granted

    def _portions(self, now: float) -> int:
        """How many have fallen due; the first does when the lease begins."""
        return max(0, floor((now - self._starts_at) / self._portion_in + _EPSILON) + 1)

    def _due(self, now: float) -> int:
        return min(self._portions(now) * self._portion, self._granted)
