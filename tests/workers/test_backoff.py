"""Waits between attempts: doubling, capped, spread, and long enough for greylisting."""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.workers.backoff import delay_in

SECONDS = [5, 10, 20, 40, 80, 160, 320, 640, 900, 900]


@pytest.mark.parametrize(("attempt", "seconds"), list(enumerate(SECONDS, start=1)))
def test_doubles_from_five_seconds_to_fifteen_minutes(attempt: int, seconds: int):
    assert delay_in(attempt, greylisted=False, random=0.0) == timedelta(seconds=seconds)


def test_jitter_adds_at_most_a_fifth():
    assert delay_in(1, greylisted=False, random=0.5) == timedelta(seconds=5.5)
    assert delay_in(9, greylisted=False, random=1.0) == timedelta(minutes=18)


@pytest.mark.parametrize(("attempt", "minutes"), [(1, 5), (6, 5), (9, 15)])
def test_greylisting_is_never_asked_again_before_five_minutes(attempt: int, minutes: int):
    assert delay_in(attempt, greylisted=True, random=0.0) == timedelta(minutes=minutes)


@settings(deadline=None, max_examples=100)
@given(st.integers(-(10**6), 10**9), st.booleans(), st.floats(0, 1, exclude_max=True))
def test_any_attempt_waits_between_the_bounds(attempt: int, greylisted: bool, random: float):
    wait = delay_in(attempt, greylisted=greylisted, random=random)
    assert timedelta(minutes=5 if greylisted else 0, seconds=0 if greylisted else 5) <= wait
    assert wait <= timedelta(minutes=18)


@pytest.mark.parametrize("greylisted", [False, True])
def test_waits_never_shrink(greylisted: bool):
    waits = [delay_in(attempt, greylisted=greylisted, random=0.3) for attempt in range(1, 15)]
    assert all(shorter <= longer for shorter, longer in pairwise(waits))
