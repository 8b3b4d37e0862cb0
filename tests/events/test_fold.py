"""The fold refuses what the tables lack, and keeps what the queue promises on every legal walk."""

from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.events.fold import (
    CampaignState,
    DeliveryState,
    IllegalTransition,
    ReplayError,
    VersionGap,
    evolve_campaign,
    evolve_delivery,
    replay,
)
from postledger.events.machines import CAMPAIGN, DELIVERY, CampaignStatus, DeliveryStatus
from postledger.events.types import (
    EVENTS,
    CampaignKind,
    Cancelled,
    Claimed,
    ContactAdded,
    Deferred,
    Delivered,
    Drafted,
    Evidence,
    Failed,
    OutcomeUnknown,
    Paused,
    Queued,
    RecipientsAdded,
    Recorded,
    Released,
    Requeued,
    Resumed,
    Sent,
    Skipped,
    Started,
    StreamKind,
)

from .strategies import events

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOON + timedelta(hours=1)
D, C = DeliveryStatus, CampaignStatus

DELIVERY_EVENTS = [cls for cls in EVENTS if cls.stream is StreamKind.DELIVERY]
CAMPAIGN_EVENTS = [cls for cls in EVENTS if cls.stream is StreamKind.CAMPAIGN]


def delivery_in(status: DeliveryStatus | None) -> DeliveryState | None:
    return status and DeliveryState(status, 2, NOON if status is D.PENDING else None, 7)


def campaign_in(status: CampaignStatus | None) -> CampaignState | None:
    return status and CampaignState(status, 7, *(("operator", LATER) if status is C.PAUSED else ()))


# Every pair of a state and an event.


@pytest.mark.parametrize("status", [None, *D], ids=str)
@pytest.mark.parametrize("cls", DELIVERY_EVENTS, ids=lambda cls: cls.type)
@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_a_delivery_takes_what_its_table_has_and_nothing_else(cls, status, data):
    event, state = data.draw(events(cls)), delivery_in(status)
    targets = [row.to_status for row in DELIVERY if (row.event, row.from_status) == (cls.type, status)]
    version = (8 if state else 1) if cls.versioned else None
    if targets:
        after = evolve_delivery(state, event, version)
        assert ([after.status], after.version) == (targets, version)
    elif state and not cls.versioned:
        assert evolve_delivery(state, event, version) == state
    else:
        with pytest.raises(IllegalTransition) as caught:
            evolve_delivery(state, event, version)
        assert (caught.value.from_status, caught.value.event) == (status, cls.type)


@pytest.mark.parametrize("status", [None, *C], ids=str)
@pytest.mark.parametrize("cls", CAMPAIGN_EVENTS, ids=lambda cls: cls.type)
@settings(deadline=None, max_examples=5)
@given(data=st.data())
def test_a_campaign_takes_what_its_table_has_and_nothing_else(cls, status, data):
    event, state = data.draw(events(cls)), campaign_in(status)
    targets = [row.to_status for row in CAMPAIGN if (row.event, row.from_status) == (cls.type, status)]
    version = 8 if state else 1
    if targets:
        after = evolve_campaign(state, event, version)
        assert ([after.status], after.version) == (targets, version)
    else:
        with pytest.raises(IllegalTransition) as caught:
            evolve_campaign(state, event, version)
        assert (caught.value.from_status, caught.value.event) == (status, cls.type)


# Legal walks.


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_delivery_keeps_its_promises_on_any_walk(data):
    by_type = {cls.type: cls for cls in DELIVERY_EVENTS}
    unversioned = [cls for cls in DELIVERY_EVENTS if not cls.versioned]
    state = None
    for _ in range(data.draw(st.integers(1, 20))):
        legal = [by_type[row.event] for row in DELIVERY if row.from_status == (state and state.status)]
        cls = data.draw(st.sampled_from(legal + (unversioned if state else [])))
        event = data.draw(events(cls))
        before, state = state, _next_delivery(state, event)
        assert (state.due_at is not None) == (state.status is D.PENDING)
        assert state.due_at == getattr(event, "due_at", None) or not cls.versioned
        assert state.version == (before.version if before else 0) + cls.versioned
        assert state.attempt >= 0
        if before and before.status in {D.SENT, D.SKIPPED, D.CANCELLED}:
            assert state == before


def _next_delivery(state, event):
    version = (state.version if state else 0) + 1
    return evolve_delivery(state, event, version if event.versioned else None)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_a_campaign_keeps_its_promises_on_any_walk(data):
    by_type = {cls.type: cls for cls in CAMPAIGN_EVENTS}
    state, pause = None, (None, None)
    for version in range(1, data.draw(st.integers(2, 20))):
        legal = [by_type[row.event] for row in CAMPAIGN if row.from_status == (state and state.status)]
        if not legal:
            assert state.status is C.CANCELLED
            return
        event = data.draw(events(data.draw(st.sampled_from(legal))))
        state = evolve_campaign(state, event, version)
        if isinstance(event, Paused):
            pause = (event.reason, event.resume_at)
        assert state.version == version
        paused = state.status is C.PAUSED
        assert (state.pause_reason, state.resume_at) == (pause if paused else (None, None))


# What becomes of the attempt.

SENDING = DeliveryState(D.SENDING, 2, None, 7)
UNKNOWN = DeliveryState(D.UNKNOWN, 2, None, 7)
PENDING = DeliveryState(D.PENDING, 2, NOON, 7)


@pytest.mark.parametrize(
    ("before", "event", "attempt"),
    [
        (None, Queued("csv", "d", NOON), 0),
        (PENDING, Claimed("c", "1", "3", 3), 2),
        (SENDING, Released("shutdown", NOON), 2),
        (SENDING, Sent(3, "smtp"), 3),
        (SENDING, Deferred(3, "retry", NOON), 3),
        (SENDING, Failed(3, "permanent_recipient"), 3),
        (SENDING, OutcomeUnknown(3, "worker_lost"), 3),
        (UNKNOWN, Requeued("resend", "policy", NOON), 2),
        (UNKNOWN, Requeued("retry", "operator", NOON), 0),
        (UNKNOWN, Requeued("retry", "policymaker", NOON), 0),
        (SENDING, Skipped("suppressed"), 2),
        (PENDING, Cancelled(), 2),
        (SENDING, Evidence("c", 9, "Failed"), 2),
    ],
    ids=lambda value: getattr(value, "type", None),
)
def test_attempt_after(before, event, attempt):
    assert _next_delivery(before, event).attempt == attempt


def test_late_evidence_takes_a_waiting_row_out_of_the_queue():
    assert evolve_delivery(PENDING, Sent(1, "smtp"), 8) == DeliveryState(D.SENT, 1, None, 8)


# Versions.


@pytest.mark.parametrize("version", [None, 0, 6, 7, 9])
def test_a_missing_or_repeated_version_is_noticed(version):
    with pytest.raises(VersionGap) as caught:
        evolve_delivery(SENDING, Sent(3, "smtp"), version)
    assert (caught.value.expected, caught.value.found) == (8, version)
    with pytest.raises(VersionGap):
        evolve_campaign(CampaignState(C.DRAFT, 7), Started(), version)


def test_feedback_carries_no_version():
    with pytest.raises(VersionGap, match="Delivered carries version 8 where none is due"):
        evolve_delivery(SENDING, Delivered(), 8)


# Replay.


def _log(*entries) -> list[Recorded]:
    return [
        Recorded(position, campaign, delivery, version, NOON, event)
        for position, (campaign, delivery, version, event) in enumerate(entries, 1)
    ]


LOG = _log(
    (0, 5, 1, ContactAdded()),
    (1, 0, 1, Drafted("spring", CampaignKind.BULK)),
    (1, 11, 1, Queued("csv", "d", NOON)),
    (1, 12, 1, Queued("csv", "e", NOON)),
    (1, 0, 2, RecipientsAdded("csv", {"rows": 2})),
    (1, 0, 3, Started()),
    (2, 0, 1, Drafted("summer", CampaignKind.BULK)),
    (1, 12, 2, Claimed("c", "1", "3", 1)),
    (1, 0, 4, Paused("operator", LATER)),
    (1, 12, 3, Sent(1, "smtp")),
    (1, 12, None, Delivered()),
    (1, 0, 5, Resumed()),
)


def test_replay_gives_each_event_with_the_state_of_its_own_stream():
    pending = DeliveryState(D.PENDING, 0, NOON, 1)
    sent = DeliveryState(D.SENT, 1, None, 3)
    assert [state for _, state in replay(LOG)] == [
        None,
        CampaignState(C.DRAFT, 1),
        pending,
        pending,
        CampaignState(C.DRAFT, 2),
        CampaignState(C.SENDING, 3),
        CampaignState(C.DRAFT, 1),
        DeliveryState(D.SENDING, 0, None, 2),
        CampaignState(C.PAUSED, 4, "operator", LATER),
        sent,
        sent,
        CampaignState(C.SENDING, 5),
    ]
    assert [recorded for recorded, _ in replay(LOG)] == LOG


def test_replay_names_the_event_at_which_it_stops():
    broken = [*LOG[:9], evolve(LOG[9], event=Queued("csv", "d", NOON)), *LOG[10:]]
    steps, seen = replay(broken), []
    message = r"^event 10 \(campaign 1, delivery 12\): Queued cannot follow sending$"
    with pytest.raises(ReplayError, match=message) as caught:
        seen.extend(steps)
    assert len(seen) == 9
    assert caught.value.recorded.position == 10
    assert isinstance(caught.value.reason, IllegalTransition)


@pytest.mark.parametrize("lost", [1, 3, 4, 5, 7, 8])
def test_replay_notices_an_event_removed_from_the_middle_of_a_stream(lost):
    with pytest.raises(ReplayError):
        list(replay(LOG[:lost] + LOG[lost + 1 :]))
