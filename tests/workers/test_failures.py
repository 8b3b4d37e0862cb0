"""When so many of a campaign's outcomes are failures that it should not go on."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.workers.failures import FAILURES, LEAST, Failures


def until_paused(failures: Failures, *, bad: int, good: int, most: int = 20_000) -> int | None:
    """The number of outcomes after which it pauses, of which `bad` in `bad + good` fail, the failures last."""
    for n in range(most):
        if failures.note(failed=n % (bad + good) >= good):
            return n + 1
    return None


def test_as_soon_as_the_share_of_a_thousand_is_certain() -> None:
    assert until_paused(Failures(None), bad=1, good=0) == LEAST // 2 + 1


@pytest.mark.parametrize(("bad", "good", "after"), [(50, 50, None), (49, 51, None), (51, 49, LEAST - 9)])
def test_more_than_half_of_them(bad: int, good: int, after: int | None) -> None:
    assert until_paused(Failures(None), bad=bad, good=good) == after


@pytest.mark.parametrize(("share", "least"), [(1, 1000), (5, 200), (10, 100), (20, 100), (99, 100)])
def test_a_share_that_somebody_asked_for(share: int, least: int) -> None:
    failures = Failures(share)
    assert failures.least == least
    assert share * failures.least >= 100 * FAILURES
    assert until_paused(Failures(share), bad=1, good=0) == share * least // 100 + 1
    assert until_paused(Failures(share), bad=share, good=100 - share, most=3 * least) is None


def test_off() -> None:
    assert until_paused(Failures(100), bad=1, good=0) is None


def test_a_good_beginning_hides_nothing() -> None:
    """The last outcomes count, not all: after a million good ones a broken list must not fail for another million."""
    failures = Failures(20)
    assert until_paused(failures, bad=0, good=1) is None
    assert until_paused(failures, bad=1, good=0) == 21


def test_after_a_pause_it_begins_anew() -> None:
    failures = Failures(20)
    assert [until_paused(failures, bad=1, good=0) for _ in range(3)] == [21, 21, 21]


@given(st.integers(1, 99), st.lists(st.booleans(), max_size=600))
@settings(deadline=None, max_examples=100)
def test_the_last_ones_are_weighed_one_by_one(share: int, outcomes: list[bool]) -> None:
    failures, seen = Failures(share), list[bool]()
    for failed in outcomes:
        seen = [*seen, failed][-failures.least :]
        too_many = failed and 100 * sum(seen) > share * failures.least
        assert failures.note(failed=failed) == too_many
        if too_many:
            seen = []
