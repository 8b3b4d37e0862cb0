"""What a verdict means for one delivery."""

from datetime import timedelta
from typing import get_args

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.events.machines import DeliveryStatus, delivery_after
from postledger.workers.decide import (
    LONGEST_WAIT,
    QUOTA_WAIT,
    RATE_LIMIT_WAIT,
    SESSION_WAIT,
    Decision,
    Policy,
    Try,
    decide,
)
from postledger.workers.replies import Kind, Scope, Verdict

KINDS: tuple[Kind, ...] = get_args(Kind)
SCOPES: tuple[Scope, ...] = get_args(Scope)
WIDE = {"session", "sender", "ip"}
"""Scopes in which every other recipient would meet the same."""

POLICY = Policy(attempts=5, max_deferred=None, give_up=timedelta(hours=24))
FIRST = Try(1, timedelta())


def verdict(kind: Kind, scope: Scope = "recipient", **more: bool) -> Verdict:
    return Verdict(kind, scope, **{"suppress": False, "alert": False, **more}, code="450 4.2.0")


def decided(given_verdict: Verdict, attempt: Try = FIRST, policy: Policy = POLICY, random: float = 0.0) -> Decision:
    return decide(given_verdict, attempt, policy, random=random)


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_verdict_has_its_event(kind: Kind, scope: Scope) -> None:
    decision = decided(verdict(kind, scope))

    wide = scope in WIDE
    expected = {
        "success": ("Deferred", None, False, False),
        "retry": ("Deferred", None, False, False),
        "rate_limited": ("Released", None, wide, False),
        "permanent_recipient": ("Failed", None, False, False),
        "permanent_batch": ("Released", "provider_auth", False, False) if wide else ("Failed", None, False, True),
        "unknown": ("OutcomeUnknown", None, False, False),
    }[kind]
    assert (decision.type, decision.pause, decision.wait is not None, decision.refused) == expected


@given(
    kind=st.sampled_from(KINDS),
    scope=st.sampled_from(SCOPES),
    suppress=st.booleans(),
    greylisted=st.booleans(),
    attempt=st.integers(1, 40),
    age=st.timedeltas(timedelta(), timedelta(days=3)),
    max_deferred=st.none() | st.integers(1, 10),
    random=st.floats(0, 1, exclude_max=True),
)
@settings(deadline=None, max_examples=300)
def test_what_is_decided_can_be_recorded(kind, scope, suppress, greylisted, attempt, age, max_deferred, random) -> None:
    """The state machine allows it for a delivery that is sending; what waits says how long, and only that."""
    found = decide(
        verdict(kind, scope, suppress=suppress, greylisted=greylisted),
        Try(attempt, age),
        Policy(5, max_deferred, timedelta(hours=24)),
        random=random,
    )

    to = delivery_after(DeliveryStatus.SENDING, found.type)
    assert (found.due_in is not None) == (to == "pending" or found.type == "OutcomeUnknown")
    assert found.due_in is None or found.due_in > timedelta()
    assert ("attempt" in found.body) == (found.type != "Released")
    assert found.suppress is None or (found.type == "Failed" and kind == "permanent_recipient")


def test_a_dead_address_is_suppressed() -> None:
    assert decided(verdict("permanent_recipient", suppress=True)).suppress == "bounced"
    assert decided(verdict("permanent_recipient")).suppress is None


def test_waits_grow_and_jitter_adds_a_fifth() -> None:
    waits = [decided(verdict("retry"), Try(n, timedelta())).due_in for n in range(1, 12)]
    seconds = [wait.total_seconds() for wait in waits if wait is not None]
    assert seconds == [5, 10, 20, 40, 80, 160, 320, 640, 900, 900, 900]

    jittered = decided(verdict("retry"), random=0.999).due_in
    assert jittered is not None
    assert timedelta(seconds=5.9) < jittered <= timedelta(seconds=6)


def test_greylisting_waits_five_minutes() -> None:
    assert decided(verdict("retry", greylisted=True)).due_in == timedelta(minutes=5)


def test_transient_replies_end_by_age_and_not_by_count() -> None:
    young = Try(1_000, timedelta(hours=23))
    assert decided(verdict("retry"), young).type == "Deferred"

    too_old = Try(2, timedelta(hours=24))
    assert decided(verdict("retry"), too_old) == Decision(
        "Failed", {"attempt": 2, "class": "exhausted", "code": "450 4.2.0"}
    )


def test_what_would_be_due_after_the_end_ends_now() -> None:
    almost = Try(20, timedelta(hours=24) - timedelta(minutes=14))
    assert decided(verdict("retry"), almost).type == "Failed"
    before = Try(20, timedelta(hours=24) - timedelta(minutes=16))
    assert decided(verdict("retry"), before).type == "Deferred"


@pytest.mark.parametrize(("attempt", "event"), [(1, "Deferred"), (2, "Deferred"), (3, "Failed"), (4, "Failed")])
def test_a_limit_of_attempts_ends_transient_replies(attempt: int, event: str) -> None:
    policy = Policy(attempts=5, max_deferred=3, give_up=timedelta(hours=24))
    assert decided(verdict("retry"), Try(attempt, timedelta()), policy).type == event


@pytest.mark.parametrize("scope", SCOPES)
def test_a_rate_limit_burns_no_attempt(scope: Scope) -> None:
    found = decided(verdict("rate_limited", scope), Try(3, timedelta(hours=1)))

    wait = SESSION_WAIT if scope == "session" else RATE_LIMIT_WAIT
    assert (found.type, found.body, found.due_in) == ("Released", {"reason": "rate_limited"}, wait)
    assert found.wait == (wait if scope in WIDE else None)


def test_age_ends_rate_limits_too() -> None:
    assert decided(verdict("rate_limited"), Try(1, timedelta(hours=24))).type == "Failed"


@pytest.mark.parametrize(("named", "waits"), [(None, QUOTA_WAIT), (timedelta(hours=6), timedelta(hours=6))])
@pytest.mark.parametrize("by_itself", [True, False])
def test_a_used_up_quota_pauses_for_a_while(named: timedelta | None, waits: timedelta, by_itself: bool) -> None:
    """Whether the reply says so itself, or those before it do; nobody's try is burned."""
    said = evolve(verdict("rate_limited", "sender"), quota=by_itself, retry_in=named)
    found = decide(said, Try(3, timedelta(hours=1)), POLICY, random=0.0, quota=not by_itself)
    assert (found.type, found.body, found.due_in) == ("Released", {"reason": "rate_limited"}, RATE_LIMIT_WAIT)
    assert (found.pause, found.resume_in, found.wait) == ("provider_quota", waits, None)


def test_other_pauses_last_until_somebody_resumes() -> None:
    assert decided(verdict("permanent_batch", "sender")).resume_in is None


@pytest.mark.parametrize(
    ("named", "waits"), [(timedelta(minutes=5), timedelta(minutes=5)), (timedelta(days=1), LONGEST_WAIT)]
)
def test_a_rate_limit_waits_as_long_as_it_says(named: timedelta, waits: timedelta) -> None:
    found = decided(evolve(verdict("rate_limited", "sender"), retry_in=named))
    assert (found.due_in, found.wait) == (waits, waits)


def test_an_unknown_outcome_waits_before_its_policy() -> None:
    found = decided(verdict("unknown", "message"), Try(2, timedelta()))
    assert found.body == {"attempt": 2, "reason": "no_final_reply"}
    assert found.due_in == timedelta(seconds=10)
