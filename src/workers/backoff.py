"""How long a deferred delivery waits before its next attempt."""

from datetime import timedelta

FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(minutes=15)
GREYLIST_WAIT = timedelta(minutes=5)
"""Greylisting servers want the same triple again after 1 to 15 minutes; some start over when it is early."""
JITTER = 0.2
_DOUBLINGS = 8
"""5 s doubled eight times is beyond the longest wait; a larger exponent would only overflow."""


def delay_in(attempt: int, *, greylisted: bool, random: float) -> timedelta:
    """The wait after `attempt` (the first is 1) failed; `random` from [0, 1) spreads it by up to 20%."""
    doublings = min(max(attempt - 1, 0), _DOUBLINGS)
    wait = min(FIRST_WAIT * (1 << doublings), LONGEST_WAIT)
    if greylisted:
        wait = max(wait, GREYLIST_WAIT)
    return wait * (1 + JITTER * random)
