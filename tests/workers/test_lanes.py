"""How much may be claimed for a sender, and when."""

import asyncio
from datetime import timedelta

import pytest

from postledger.workers.lanes import CLAIM_EVERY, NEVER, OPEN_LONGEST, Lane
from postledger.workers.providers.base import Provider
from postledger.workers.providers.null import NullProvider
from tests.workers.clocks import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make_lane(clock: Clock, concurrency: int = 10, provider: Provider | None = None) -> Lane:
    return Lane(provider or NullProvider(renders=True), "null://?render=1", concurrency, asyncio.Event(), clock=clock)


def opened(clock: Clock, concurrency: int = 10, provider: Provider | None = None) -> Lane:
    lane = make_lane(clock, concurrency, provider)
    lane.on_trial()
    lane.opened()
    lane.room.clear()
    return lane


def test_nothing_is_claimed_before_the_relay_has_been_tried(clock: Clock) -> None:
    lane = make_lane(clock)
    assert lane.wants_trial
    assert lane.claimable() == 0

    lane.on_trial()
    assert not lane.wants_trial
    assert (lane.claimable(), lane.retry_in()) == (0, NEVER)

    lane.opened()
    assert lane.claimable() == 10
    assert lane.room.is_set()


def test_a_claim_takes_half_the_lane_at_least(clock: Clock) -> None:
    lane = opened(clock)
    lane.take(10, 1)
    for free, claimable in ((1, 0), (4, 0), (5, 5), (10, 10)):
        lane.give_back(free - lane.free, 1)
        assert lane.claimable() == claimable, free


def test_slow_sends_do_not_starve_the_free_slots(clock: Clock) -> None:
    lane = opened(clock)
    lane.take(10, 1)
    lane.give_back(2, 1)
    assert lane.claimable() == 0
    assert lane.retry_in() == pytest.approx(CLAIM_EVERY)

    clock.now += lane.retry_in()
    assert lane.claimable() == 2


def test_a_full_lane_waits_for_room_alone(clock: Clock) -> None:
    lane = opened(clock)
    lane.take(10, 1)
    clock.now += 10
    assert (lane.claimable(), lane.retry_in()) == (0, NEVER)

    lane.give_back(1, 1)
    assert lane.room.is_set()


def test_a_lane_of_batches_claims_whole_ones(clock: Clock) -> None:
    lane = opened(clock, provider=NullProvider())
    assert (lane.capacity, lane.claimable()) == (1000, 500)

    lane.take(500, 1)
    assert lane.claimable() == 500
    lane.take(300, 1)
    clock.now += 10
    assert (lane.claimable(), lane.retry_in()) == (0, NEVER)

    lane.give_back(300, 1)
    assert lane.room.is_set()
    assert lane.claimable() == 500


def test_sends_that_fail_together_count_once(clock: Clock) -> None:
    lane = opened(clock)
    lane.take(10, 1)
    assert lane.broke("down") == timedelta(seconds=1)
    clock.now += 0.25
    assert lane.broke("down") == timedelta(seconds=0.75)
    assert lane.claimable() == 0
    assert not lane.wants_trial


def test_each_failed_trial_doubles_the_wait(clock: Clock) -> None:
    lane = opened(clock)
    waits = []
    for _ in range(9):
        waits.append(lane.broke("down").total_seconds())
        assert lane.retry_in() == waits[-1]
        clock.now += waits[-1]
        assert lane.wants_trial
        lane.on_trial()
    assert waits == [1, 2, 4, 8, 16, 32, OPEN_LONGEST, OPEN_LONGEST, OPEN_LONGEST]


def test_after_a_trial_one_mail_proves_the_relay(clock: Clock) -> None:
    lane = opened(clock)
    lane.broke("down")
    clock.now += 1
    lane.on_trial()
    lane.opened()
    assert lane.claimable() == 1

    lane.take(1, 1)
    assert (lane.claimable(), lane.retry_in()) == (0, NEVER)
    lane.worked()
    lane.give_back(1, 1)
    assert lane.room.is_set()
    assert lane.claimable() == 10


def test_a_failed_trial_wakes_the_dispatcher(clock: Clock) -> None:
    """It sleeps without a limit meanwhile, and has to learn the new one."""
    lane = make_lane(clock)
    lane.on_trial()
    lane.broke("down")
    assert lane.room.is_set()
    assert lane.retry_in() == 1


def test_the_whole_sender_slows_down(clock: Clock) -> None:
    lane = opened(clock)
    lane.wait(timedelta(seconds=60))
    lane.wait(timedelta(seconds=10))
    assert (lane.claimable(), lane.retry_in()) == (0, 60)

    clock.now += 60
    assert lane.claimable() == 10
