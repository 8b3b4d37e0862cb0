"""Every event there is, as one closed union."""

from datetime import datetime
from typing import TypeAlias, get_args

from attrs import frozen

from .campaign import (
    CampaignCancelled,
    CampaignEvent,
    CampaignKind,
    Changed,
    Completed,
    Drafted,
    Paused,
    RecipientsAdded,
    Reopened,
    Resumed,
    Scheduled,
    Started,
    UnknownPolicy,
    Unscheduled,
)
from .contact import (
    ContactAdded,
    ContactEvent,
    ContactUnsubscribed,
    Erased,
    Subscribed,
    Suppressed,
    Unsuppressed,
)
from .delivery import (
    POLICY,
    Bounced,
    Cancelled,
    Claimed,
    Clicked,
    Complained,
    Deferred,
    Delayed,
    Delivered,
    DeliveryEvent,
    Evidence,
    Failed,
    Feedback,
    Opened,
    OutcomeUnknown,
    Queued,
    Released,
    Requeued,
    Retracted,
    Sent,
    Skipped,
    Unsubscribed,
)
from .stream import Event, StreamKind, stream_kind
from .system import EpochBegun, KeyCreated, KeyRevoked, Migrated, SenderChanged, SystemEvent

AnyEvent: TypeAlias = DeliveryEvent | CampaignEvent | ContactEvent | SystemEvent

EVENTS: tuple[type[AnyEvent], ...] = get_args(AnyEvent)


@frozen
class Recorded:
    """An event with its place in the log; `delivery_id` is the contact's id where `campaign_id` is 0."""

    position: int
    campaign_id: int
    delivery_id: int
    version: int | None
    at: datetime
    event: AnyEvent


__all__ = [
    "EVENTS",
    "POLICY",
    "AnyEvent",
    "Bounced",
    "CampaignCancelled",
    "CampaignEvent",
    "CampaignKind",
    "Cancelled",
    "Changed",
    "Claimed",
    "Clicked",
    "Complained",
    "Completed",
    "ContactAdded",
    "ContactEvent",
    "ContactUnsubscribed",
    "Deferred",
    "Delayed",
    "Delivered",
    "DeliveryEvent",
    "Drafted",
    "EpochBegun",
    "Erased",
    "Event",
    "Evidence",
    "Failed",
    "Feedback",
    "KeyCreated",
    "KeyRevoked",
    "Migrated",
    "Opened",
    "OutcomeUnknown",
    "Paused",
    "Queued",
    "RecipientsAdded",
    "Recorded",
    "Released",
    "Reopened",
    "Requeued",
    "Resumed",
    "Retracted",
    "Scheduled",
    "SenderChanged",
    "Sent",
    "Skipped",
    "Started",
    "StreamKind",
    "Subscribed",
    "Suppressed",
    "SystemEvent",
    "UnknownPolicy",
    "Unscheduled",
    "Unsubscribed",
    "Unsuppressed",
    "stream_kind",
]
