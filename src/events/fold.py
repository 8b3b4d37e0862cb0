"""What a stream's events add up to: the state after each, or the proof that it cannot have happened."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TypeAlias, assert_never

from attrs import evolve, frozen

from ..errors import PostledgerError
from .delivery import Change, Observation
from .machines import CampaignStatus, DeliveryStatus, campaign_after, delivery_after
from .types import (
    POLICY,
    CampaignEvent,
    Cancelled,
    Claimed,
    Deferred,
    DeliveryEvent,
    Failed,
    OutcomeUnknown,
    Paused,
    Queued,
    Recorded,
    Released,
    Requeued,
    Sent,
    Skipped,
)


class StreamError(PostledgerError):
    """An event that cannot stand where it stands."""


class IllegalTransition(StreamError):  # noqa: N818 - it names what was found, not what was done
    """The state machine has no such row."""

    def __init__(self, from_status: str | None, event: str) -> None:
        super().__init__(f"{event} cannot follow {from_status or 'an empty stream'}")
        self.from_status = from_status
        self.event = event


class VersionGap(StreamError):  # noqa: N818 - likewise
    """An event is missing, is there twice, or carries a version although its kind has none."""

    def __init__(self, expected: int | None, found: int | None, event: str) -> None:
        super().__init__(f"{event} carries version {found or 'none'} where {expected or 'none'} is due")
        self.expected = expected
        self.found = found
        self.event = event


class ReplayError(PostledgerError):
    """Replay stopped at an event; `reason` says why."""

    def __init__(self, recorded: Recorded, reason: StreamError) -> None:
        where = f"campaign {recorded.campaign_id}, delivery {recorded.delivery_id}"
        super().__init__(f"event {recorded.position} ({where}): {reason}")
        self.recorded = recorded
        self.reason = reason


@frozen
class DeliveryState:
    """The row of `recipient_queue`; `due_at` is set exactly while the status is pending."""

    status: DeliveryStatus
    attempt: int
    due_at: datetime | None
    version: int


@frozen
class CampaignState:
    """`pause_reason` and `resume_at` are set only while the status is paused."""

    status: CampaignStatus
    version: int
    pause_reason: str | None = None
    resume_at: datetime | None = None


State: TypeAlias = DeliveryState | CampaignState


def evolve_delivery(state: DeliveryState | None, event: DeliveryEvent, version: int | None) -> DeliveryState:
    """The state after the event that the log holds under this version.

    Raises IllegalTransition and VersionGap.
    """
    if isinstance(event, Observation):
        return _observed(state, event, version)
    expected = _expected(state, event, version)
    status = delivery_after(state.status if state else None, event.type)
    if status is None:
        raise IllegalTransition(state.status if state else None, event.type)
    attempt, due_at = _columns(state.attempt if state else 0, event)
    return DeliveryState(status, attempt, due_at, expected)


def evolve_campaign(state: CampaignState | None, event: CampaignEvent, version: int | None) -> CampaignState:
    """The same for a campaign."""
    expected = _expected(state, event, version)
    status = campaign_after(state.status if state else None, event.type)
    if status is None:
        raise IllegalTransition(state.status if state else None, event.type)
    if isinstance(event, Paused):
        return CampaignState(status, expected, event.reason, event.resume_at)
    if state and status is state.status:
        return evolve(state, version=expected)
    return CampaignState(status, expected)


def replay(log: Iterable[Recorded]) -> Iterator[tuple[Recorded, State | None]]:
    """Each event with the state of its stream after it: None for contacts and the system, which have none.

    Keeps one state per stream. Raises ReplayError at the first event that cannot stand where it stands.
    """
    streams = _Streams({}, {})
    for recorded in log:
        try:
            state = streams.add(recorded)
        except StreamError as reason:
            raise ReplayError(recorded, reason) from reason
        yield recorded, state


@frozen
class _Streams:
    deliveries: dict[tuple[int, int], DeliveryState]
    campaigns: dict[int, CampaignState]

    def add(self, recorded: Recorded) -> State | None:
        event, key = recorded.event, (recorded.campaign_id, recorded.delivery_id)
        if isinstance(event, DeliveryEvent):
            after = evolve_delivery(self.deliveries.get(key), event, recorded.version)
            self.deliveries[key] = after
            return after
        if isinstance(event, CampaignEvent):
            campaign = evolve_campaign(self.campaigns.get(key[0]), event, recorded.version)
            self.campaigns[key[0]] = campaign
            return campaign
        return None


def _columns(attempt: int, event: Change) -> tuple[int, datetime | None]:
    """`attempt` and `due_at` after the event; the attempt comes in as it stood before."""
    match event:
        case Queued():
            return 0, event.due_at
        case Deferred():
            return event.attempt, event.due_at
        case Released():
            return attempt, event.due_at
        case Requeued():
            return attempt if event.by == POLICY else 0, event.due_at
        case Sent() | Failed() | OutcomeUnknown():
            return event.attempt, None
        case Claimed() | Skipped() | Cancelled():
            # A claim carries the next attempt and does not burn it yet: only an outcome does.
            return attempt, None
        case _:
            assert_never(event)


def _expected(state: State | None, event: DeliveryEvent | CampaignEvent, version: int | None) -> int:
    expected = state.version + 1 if state else 1
    if version != expected:
        raise VersionGap(expected, version, event.type)
    return expected


def _observed(state: DeliveryState | None, event: Observation, version: int | None) -> DeliveryState:
    if version is not None:
        raise VersionGap(None, version, event.type)
    if state is None:
        raise IllegalTransition(None, event.type)
    return state
