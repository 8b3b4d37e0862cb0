"""Whose turn it is, and how much each may take."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.ledger.queue import Lease
from postledger.workers.lanes import Lane
from postledger.workers.providers.null import NullProvider
from postledger.workers.turns import REMEMBERED, Round, Turns
from tests.workers.clocks import Clock


def make_lane(clock: Clock, concurrency: int = 50, *, batch: bool = False) -> Lane:
    lane = Lane(NullProvider(renders=not batch), "null://", concurrency, asyncio.Event(), clock=clock)
    lane.opened()
    return lane


def limited(lane: Lane, clock: Clock, ready: int) -> Lane:
    lane.limit("100/s")
    assert lane.tokens is not None
    lane.tokens.take(Lease(ready, 0.01, 0.0, None))
    return lane


def test_the_one_served_longest_ago_is_next() -> None:
    turns = Turns()
    turns.served(1)
    turns.served(2)
    turns.served(1)
    assert turns.order([1, 2, 3], {}) == [3, 2, 1]
    assert turns.order([1, 2, 3], {1: 5, 2: -1}) == [1, 3, 2]


def test_it_does_not_remember_for_ever() -> None:
    turns = Turns()
    for campaign in range(REMEMBERED + 10):
        turns.served(campaign)
    assert len(turns._served) == REMEMBERED
    assert turns.order([REMEMBERED, 5], {}) == [5, REMEMBERED]


@given(st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=1, max_size=40))
@settings(deadline=None, max_examples=200)
def test_nobody_who_wants_is_passed_over_twice(rounds: list[set[int]]) -> None:
    """With one turn to a round: who has waited since a rival's last turn goes before that rival's next one."""
    turns, waiting = Turns(), Counter[int]()
    for wants in rounds:
        first = turns.order(wants, {})[0]
        turns.served(first)
        waiting = Counter({one: waiting[one] + 1 for one in wants if one != first})
        assert max(waiting.values(), default=0) < 8


def test_rivals_share_the_slots() -> None:
    clock = Clock()
    lane = make_lane(clock)
    lanes = dict.fromkeys(range(1, 13), lane)
    turn = Round(lanes, {})
    given = {}
    for campaign in lanes:
        given[campaign] = turn.portion(campaign)
        turn.gave(campaign, given[campaign])
    assert given == {**dict.fromkeys(range(1, 11), 5), 11: 0, 12: 0}


def test_a_slow_campaign_leaves_the_others_their_share() -> None:
    clock = Clock()
    lane = make_lane(clock)
    lane.take(40, 1)
    clock.now += 1
    turn = Round({1: lane, 2: lane}, {})
    assert (turn.portion(1), turn.portion(2)) == (0, 8)
    assert not turn.is_unfair
    turn.wants_no_more(2)
    assert turn.is_unfair
    assert Round({1: lane}, {}).portion(1) == 8


def test_a_higher_priority_has_no_rivals_below() -> None:
    clock = Clock()
    lane = make_lane(clock)
    turn = Round({1: lane, 2: lane, 3: lane}, {1: 1})
    assert turn.portion(1) == 48
    lane.take(48, 1)
    turn.gave(1, 48)
    assert turn.portion(2) == 0


def test_a_campaign_that_has_none_may_take_the_spare_slots() -> None:
    clock = Clock()
    lane = make_lane(clock)
    lane.take(48, 1)
    clock.now += 1
    assert Round({1: lane}, {}).portion(1) == 0
    assert Round({1: lane, 2: lane}, {}).portion(2) == 2
    assert Round({1: lane, 2: lane}, {2: 1}).portion(2) == 2
    assert Round({1: lane, 2: lane}, {1: 1}).portion(2) == 0  # a lower one has to wait


def test_another_sender_is_no_rival() -> None:
    clock = Clock()
    one, other = make_lane(clock), make_lane(clock)
    one.take(50, 1)
    turn = Round({1: one, 2: other}, {})
    assert (turn.portion(1), turn.portion(2)) == (0, 48)


def test_batches_are_shared_whole() -> None:
    clock = Clock()
    lane = make_lane(clock, batch=True)
    lanes = {1: lane, 2: lane, 3: lane}
    turn = Round(lanes, {})
    assert turn.portion(1) == 500
    lane.take(500, 1)
    assert [Round(lanes, {}).portion(campaign) for campaign in lanes] == [0, 500, 500]


@pytest.mark.parametrize(("rivals", "portion"), [(1, 10), (10, 10), (12, 8), (200, 1)])
def test_a_rate_gives_each_a_turn_in_a_second(rivals: int, portion: int) -> None:
    clock = Clock()
    lane = limited(make_lane(clock, concurrency=1000), clock, ready=10)
    assert Round(dict.fromkeys(range(rivals), lane), {}).portion(0) == min(portion, lane.share(rivals))


def test_no_more_than_there_are_tokens() -> None:
    clock = Clock()
    lane = limited(make_lane(clock), clock, ready=3)
    turn = Round({1: lane, 2: lane}, {})
    assert turn.portion(1) == 3
    lane.take(3, 1)
    turn.gave(1, 3)
    assert (turn.portion(2), lane.claimable()) == (0, 0)
