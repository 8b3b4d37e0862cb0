"""What may happen in which state: the same rows as the table `transitions` in schema.sql.

An event without a version (Evidence, feedback) is in no row: it may come in any state and changes none.
"""

from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

from attrs import frozen

from .stream import StreamKind


class DeliveryStatus(StrEnum):
    """Where a recipient stands, in the order in which counts are shown."""

    PENDING = "pending"
    SENDING = "sending"
    SENT = "sent"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class CampaignStatus(StrEnum):
    """Where a campaign stands."""

    DRAFT = "draft"
    SCHEDULED = "scheduled"
    SENDING = "sending"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"


S = TypeVar("S", bound=StrEnum)


@frozen
class Transition(Generic[S]):
    """One row; `from_status` None means that nothing was there before."""

    machine: StreamKind
    event: str
    from_status: S | None
    to_status: S


Moves: TypeAlias = tuple[str, tuple[S | None, ...], S]


def _rows(machine: StreamKind, *moves: Moves[S]) -> tuple[Transition[S], ...]:
    return tuple(Transition(machine, event, source, target) for event, sources, target in moves for source in sources)


_D = DeliveryStatus

DELIVERY: tuple[Transition[DeliveryStatus], ...] = _rows(
    StreamKind.DELIVERY,
    ("Queued", (None,), _D.PENDING),
    ("Claimed", (_D.PENDING,), _D.SENDING),
    # From anywhere but sending it is late evidence: the mail left, whatever was believed meanwhile.
    ("Sent", (_D.SENDING, _D.PENDING, _D.UNKNOWN, _D.FAILED), _D.SENT),
    ("Deferred", (_D.SENDING,), _D.PENDING),
    ("Released", (_D.SENDING,), _D.PENDING),
    ("Failed", (_D.SENDING, _D.UNKNOWN), _D.FAILED),
    ("OutcomeUnknown", (_D.SENDING,), _D.UNKNOWN),
    ("Requeued", (_D.UNKNOWN, _D.FAILED), _D.PENDING),
    ("Skipped", (_D.PENDING, _D.SENDING), _D.SKIPPED),
    ("Cancelled", (_D.PENDING,), _D.CANCELLED),
)

_C = CampaignStatus

CAMPAIGN: tuple[Transition[CampaignStatus], ...] = _rows(
    StreamKind.CAMPAIGN,
    ("Drafted", (None,), _C.DRAFT),
    # Not after the start: a letter that has begun to leave is the same for all.
    ("Changed", (_C.DRAFT,), _C.DRAFT),
    ("Changed", (_C.SCHEDULED,), _C.SCHEDULED),
    ("RecipientsAdded", (_C.DRAFT,), _C.DRAFT),
    ("RecipientsAdded", (_C.SCHEDULED,), _C.SCHEDULED),
    ("RecipientsAdded", (_C.SENDING,), _C.SENDING),
    ("RecipientsAdded", (_C.PAUSED,), _C.PAUSED),
    ("Scheduled", (_C.DRAFT,), _C.SCHEDULED),
    ("Unscheduled", (_C.SCHEDULED,), _C.DRAFT),
    ("Started", (_C.DRAFT, _C.SCHEDULED), _C.SENDING),
    ("Paused", (_C.SENDING,), _C.PAUSED),
    ("Resumed", (_C.PAUSED,), _C.SENDING),
    ("Cancelled", (_C.DRAFT, _C.SCHEDULED, _C.SENDING, _C.PAUSED), _C.CANCELLED),
    ("Completed", (_C.SENDING,), _C.COMPLETED),
    ("Reopened", (_C.COMPLETED,), _C.SENDING),
)

_AFTER_DELIVERY = {(row.event, row.from_status): row.to_status for row in DELIVERY}
_AFTER_CAMPAIGN = {(row.event, row.from_status): row.to_status for row in CAMPAIGN}


def delivery_after(status: DeliveryStatus | None, event: str) -> DeliveryStatus | None:
    """The status after the event of this type name, or None where it may not happen."""
    return _AFTER_DELIVERY.get((event, status))


def campaign_after(status: CampaignStatus | None, event: str) -> CampaignStatus | None:
    """The same for a campaign."""
    return _AFTER_CAMPAIGN.get((event, status))
