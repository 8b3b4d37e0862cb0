"""How much may be claimed for a sender, and when."""

import asyncio
from datetime import timedelta

import pytest

from postledger.ledger.queue import Lease
from postledger.workers.lanes import CLAIM_EVERY, NEVER, OPEN_LONGEST, QUOTA_IN_A_ROW, Lane
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
    assert (lane.capacity, lane.claimable()) == (1500, 500)

    lane.take(1000, 1)
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


def test_answers_that_were_under_way_do_not_close_the_breaker(clock: Clock) -> None:
    """The connections of a relay that goes down do not all break at once."""
    lane = opened(clock)
    lane.take(3, 1)
    lane.broke("down")
    lane.worked()
    clock.now += 1
    lane.on_trial()
    assert lane.broke("down") == timedelta(seconds=2)

    clock.now += 2
    lane.on_trial()
    lane.opened()
    assert lane.claimable() == 0
    lane.give_back(3, 1)
    assert lane.claimable() == 1
    lane.take(1, 1)
    lane.worked()
    lane.give_back(1, 1)
    assert lane.claimable() == 10


class TestQuota:
    def test_ten_fresh_ones_in_a_row_tell_of_it(self, clock: Clock) -> None:
        lane = opened(clock)
        told = [lane.refused_452(fresh=True) for _ in range(QUOTA_IN_A_ROW)]
        assert told == [False] * (QUOTA_IN_A_ROW - 1) + [True]

    def test_those_who_were_tried_before_do_not(self, clock: Clock) -> None:
        """The last rows of a campaign are full mailboxes that are tried again and again."""
        lane = opened(clock)
        assert not any(lane.refused_452(fresh=False) for _ in range(100))

    def test_one_that_is_taken_ends_the_row(self, clock: Clock) -> None:
        lane = opened(clock)
        for _ in range(5):
            assert not any(lane.refused_452(fresh=True) for _ in range(QUOTA_IN_A_ROW - 1))
            lane.accepted()

    def test_then_one_mail_at_a_time_until_one_is_taken(self, clock: Clock) -> None:
        lane = opened(clock)
        lane.short_of_quota(1)
        lane.room.clear()
        assert (lane.claimable(), lane.retry_in()) == (0, NEVER)  # its campaign is about to pause
        lane.paused(1)
        assert lane.room.is_set()
        assert lane.claimable() == 1
        lane.take(1, 1)
        assert (lane.claimable(), lane.retry_in()) == (0, NEVER)
        lane.worked()
        lane.give_back(1, 1)
        assert lane.claimable() == 1
        assert lane.refused_452(fresh=False)
        lane.accepted()
        assert lane.claimable() == 10
        assert not lane.refused_452(fresh=True)

    def test_what_was_under_way_proves_no_quota(self, clock: Clock) -> None:
        """The last mail that is taken may be answered after the first that are refused."""
        lane = opened(clock)
        lane.take(10, 1)
        lane.short_of_quota(1)
        lane.paused(1)
        lane.give_back(9, 1)
        lane.accepted()
        lane.give_back(1, 1)
        assert lane.claimable() == 1
        lane.take(1, 1)
        lane.short_of_quota(1)  # refused once more
        lane.paused(1)
        lane.give_back(1, 1)
        assert lane.claimable() == 1


class TestRate:
    def test_it_claims_no_more_than_it_has_tokens(self, clock: Clock) -> None:
        lane = opened(clock)
        lane.limit("30/s")
        assert (lane.claimable(), lane.retry_in()) == (0, 0.0)
        assert lane.wants_tokens() is not None
        assert lane.tokens is not None
        lane.tokens.take(Lease(3, 1 / 30, 0.0, None))
        assert (lane.claimable(), lane.wants_tokens()) == (3, None)
        lane.take(3, 1)
        assert lane.claimable() == 0

    def test_no_tokens_are_asked_for_where_no_slot_is_free(self, clock: Clock) -> None:
        lane = opened(clock)
        lane.limit("30/s")
        lane.take(10, 1)
        assert (lane.wants_tokens(), lane.claimable(), lane.retry_in()) == (None, 0, NEVER)

    def test_the_same_rate_again_keeps_what_is_leased(self, clock: Clock) -> None:
        lane = opened(clock)
        lane.limit("30/s")
        tokens = lane.tokens
        lane.limit("30/s")
        assert lane.tokens is tokens
        lane.limit("40/s")
        assert lane.tokens is not tokens
        lane.limit(None)
        assert (lane.tokens, lane.claimable()) == (None, 10)


class TestShares:
    @pytest.mark.parametrize(("rivals", "share"), [(1, 10), (2, 5), (3, 4), (10, 1), (50, 1)])
    def test_slots(self, clock: Clock, rivals: int, share: int) -> None:
        assert make_lane(clock).share(rivals) == share

    @pytest.mark.parametrize(("rivals", "share"), [(1, 1500), (2, 500), (12, 500)])
    def test_batches(self, clock: Clock, rivals: int, share: int) -> None:
        assert make_lane(clock, provider=NullProvider()).share(rivals) == share

    def test_the_last_of_a_campaigns_slots_wakes_the_dispatcher(self, clock: Clock) -> None:
        """It may be that campaign's end, however busy the lane is with others."""
        lane = opened(clock)
        lane.take(8, 1)
        lane.take(1, 2)
        lane.give_back(1, 1)
        assert not lane.room.is_set()
        lane.give_back(1, 2)
        assert lane.room.is_set()
        assert dict(lane.held) == {1: 7}
