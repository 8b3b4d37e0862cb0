"""When a worker is declared dead, and when it is not."""

import pytest

from postledger.workers.reaper import PROBE_EVERY, Probe, Suspicion


def probe(worker: int = 1, session: int = 1, *, free: bool = True, ended: bool = False, overdue: bool = False) -> Probe:
    return Probe(worker, session, ended, free, overdue)


def test_a_free_lock_proves_a_death_when_it_is_seen_twice() -> None:
    suspicion = Suspicion()
    assert suspicion.judge([probe()], 10.0, trusted=True) == []
    assert suspicion.judge([probe()], 10.0 + PROBE_EVERY, trusted=True) == [probe()]


def test_two_looks_within_a_second_prove_nothing() -> None:
    suspicion = Suspicion()
    assert suspicion.judge([probe()], 10.0, trusted=True) == []
    assert suspicion.judge([probe()], 10.9, trusted=True) == []
    assert suspicion.judge([probe()], 11.0, trusted=True) == [probe()]


def test_a_new_session_begins_anew() -> None:
    suspicion = Suspicion()
    suspicion.judge([probe(session=1)], 10.0, trusted=True)
    assert suspicion.judge([probe(session=2)], 11.5, trusted=True) == []
    assert suspicion.judge([probe(session=2)], 12.5, trusted=True) == [probe(session=2)]


def test_a_lock_that_was_held_in_between_begins_anew() -> None:
    suspicion = Suspicion()
    suspicion.judge([probe()], 10.0, trusted=True)
    suspicion.judge([probe(free=False)], 11.0, trusted=True)
    assert suspicion.judge([probe()], 12.0, trusted=True) == []


def test_who_is_not_there_any_more_is_no_suspect() -> None:
    suspicion = Suspicion()
    suspicion.judge([probe()], 10.0, trusted=True)
    suspicion.judge([], 11.0, trusted=True)
    assert suspicion.judge([probe()], 12.0, trusted=True) == []


def test_nothing_counts_before_the_observer_is_back_for_a_while() -> None:
    """After a restart of the server every lock is free; what was seen until then is no first look either."""
    suspicion = Suspicion()
    assert suspicion.judge([probe()], 10.0, trusted=False) == []
    assert suspicion.judge([probe()], 14.0, trusted=False) == []
    assert suspicion.judge([probe()], 15.0, trusted=True) == []
    assert suspicion.judge([probe()], 16.0, trusted=True) == [probe()]


def test_a_lease_that_is_over_needs_no_second_look() -> None:
    hung = probe(free=False, overdue=True)
    assert Suspicion().judge([hung], 10.0, trusted=True) == [hung]


def test_an_outage_of_the_server_ends_no_lease() -> None:
    """It lasted longer than the lease, and this observer is back first."""
    assert Suspicion().judge([probe(free=False, overdue=True)], 10.0, trusted=False) == []


@pytest.mark.parametrize("trusted", [True, False])
def test_nobody_dies_twice(trusted: bool) -> None:
    ended = probe(ended=True, overdue=True)
    suspicion = Suspicion()
    suspicion.judge([ended], 10.0, trusted=trusted)
    assert suspicion.judge([ended], 12.0, trusted=trusted) == []


def test_each_worker_is_judged_by_itself() -> None:
    suspicion = Suspicion()
    suspicion.judge([probe(1), probe(2, free=False)], 10.0, trusted=True)
    assert suspicion.judge([probe(1), probe(2)], 11.0, trusted=True) == [probe(1)]
    assert suspicion.judge([probe(2)], 12.0, trusted=True) == [probe(2)]


def test_a_recovery_is_measured_from_the_first_sign() -> None:
    suspicion = Suspicion()
    suspicion.judge([probe(1)], 10.0, trusted=True)
    suspicion.judge([probe(1), probe(2)], 11.2, trusted=True)
    assert suspicion.signs([1, 2], 11.5) == [10.0, 11.2]
    assert suspicion.signs([3], 11.5) == [11.5]  # found by its lease: the sign is now
