"""A sender's rate as one worker spends it."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.ledger.queue import Lease
from postledger.workers.tokens import KEPT, LONGEST, PORTION, Tokens
from tests.workers.clocks import Clock


def leased(clock: Clock, granted: int, each: float, starts_in: float = 0.0) -> Tokens:
    tokens = Tokens(clock)
    assert tokens.wants() is not None
    tokens.take(Lease(granted, each, starts_in, None))
    return tokens


def test_a_portion_at_once_and_the_next_when_it_is_due() -> None:
    clock = Clock()
    tokens = leased(clock, 30, 0.01)
    assert tokens.ready() == 10
    tokens.spend(10)
    assert (tokens.ready(), tokens.ready_in()) == (0, pytest.approx(PORTION))
    clock.now += tokens.ready_in()
    assert tokens.ready() == 10


def test_a_piece_that_begins_later() -> None:
    clock = Clock()
    tokens = leased(clock, 5, 0.01, starts_in=0.4)
    assert (tokens.ready(), tokens.wants(), tokens.ready_in()) == (0, None, pytest.approx(0.4))
    clock.now += 0.4
    assert tokens.ready() == 5


def test_a_slow_rate_goes_one_by_one() -> None:
    clock = Clock()
    tokens = leased(clock, 1, 60.0)
    assert tokens.ready() == 1
    clock.now += 59  # nothing was due to be sent: it waits for as long as it lasts
    assert tokens.ready() == 1
    tokens.spend(1)
    assert (tokens.ready(), tokens.ready_in()) == (0, 0.0)
    assert tokens.wants() is not None


def test_what_nobody_takes_is_lost() -> None:
    clock = Clock()
    tokens = leased(clock, 100, 0.01)
    clock.now += 0.95
    assert tokens.ready() == KEPT * 10
    clock.now += 0.05
    assert tokens.ready() == 0
    assert tokens.wants() == timedelta(seconds=PORTION)


def test_who_uses_up_what_it_has_asks_for_more() -> None:
    clock = Clock()
    tokens = Tokens(clock)
    asked = []
    for _ in range(7):
        length = tokens.wants()
        assert length is not None
        asked.append(length.total_seconds())
        tokens.take(Lease(round(asked[-1] * 100), 0.01, 0.0, None))
        while tokens.wants() is None:
            tokens.spend(tokens.ready())
            clock.now += tokens.ready_in()
    assert asked == [0.1, 0.2, 0.4, 0.8, LONGEST, LONGEST, LONGEST]
    tokens.take(Lease(100, 0.01, 0.0, None))
    clock.now += 1.0
    assert tokens.wants() == timedelta(seconds=PORTION)


def test_who_is_refused_asks_again_then() -> None:
    clock = Clock()
    tokens = Tokens(clock)
    tokens.take(Lease(0, 0.01, None, timedelta(seconds=0.3)))
    assert (tokens.ready(), tokens.wants(), tokens.ready_in()) == (0, None, pytest.approx(0.3))
    clock.now += 0.3
    assert tokens.wants() is not None


@given(
    rate=st.sampled_from([0.5, 3, 7, 100, 333, 5000]),
    steps=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 1000)), max_size=60),
)
@settings(deadline=None, max_examples=200)
def test_the_rate_is_kept_whatever_the_worker_does(rate: float, steps: list[tuple[int, int]]) -> None:
    """A second never has more than the rate and what may wait; time and greed come as they like."""
    clock, sent, free = Clock(), [], 0.0
    tokens = Tokens(clock)
    for wait, greed in steps:
        clock.now += wait / 1000
        length = tokens.wants()
        if length is not None:
            granted = max(1, int(length.total_seconds() * rate))
            free = max(free, clock.now)
            if free > clock.now:
                tokens.take(Lease(0, 1 / rate, None, timedelta(seconds=free - clock.now)))
            else:
                tokens.take(Lease(granted, 1 / rate, 0.0, None))
                free += granted / rate
        count = min(greed, tokens.ready())
        assert count >= 0
        tokens.spend(count)
        sent += [clock.now] * count
    portion = max(1, round(PORTION * rate))
    for begin in set(sent):
        assert sum(begin <= at < begin + 1 for at in sent) <= rate + KEPT * portion + 1
