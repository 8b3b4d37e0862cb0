"""What may happen to a campaign."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import ClassVar, TypeAlias

from attrs import frozen

from .stream import Event, StreamKind


class CampaignKind(StrEnum):
    """A bulk campaign ends; a standing one (receipts, welcome mail) never completes."""

    BULK = "bulk"
    STANDING = "standing"


class UnknownPolicy(StrEnum):
    """What becomes of a delivery whose outcome is unknown."""

    RESEND = "resend"
    HOLD = "hold"


@frozen
class _Campaign(Event):
    stream: ClassVar[StreamKind] = StreamKind.CAMPAIGN


@frozen
class Drafted(_Campaign):
    """The campaign was written down; `template` is a content hash.

    `give_up`, `expires` and `missed_after` are seconds, `max_errors` percent; `track` of opens and clicks.
    """

    type: ClassVar[str] = "Drafted"
    name: str
    kind: CampaignKind
    generation: int | None = None
    sender: str | None = None
    template: str | None = None
    unknown: UnknownPolicy | None = None
    attempts: int | None = None
    give_up: int | None = None
    priority: int | None = None
    list: str | None = None
    expires: int | None = None
    missed_after: int | None = None
    max_errors: int | None = None
    track: tuple[str, ...] = ()


@frozen
class Changed(_Campaign):
    """Before its start the named `fields` got the values given; a field named without one lost its own."""

    type: ClassVar[str] = "Changed"
    fields: tuple[str, ...]
    name: str | None = None
    kind: CampaignKind | None = None
    generation: int | None = None
    sender: str | None = None
    template: str | None = None
    unknown: UnknownPolicy | None = None
    attempts: int | None = None
    give_up: int | None = None
    priority: int | None = None
    list: str | None = None
    expires: int | None = None
    missed_after: int | None = None
    max_errors: int | None = None
    track: tuple[str, ...] = ()


@frozen
class RecipientsAdded(_Campaign):
    """An audience was queued; `counts` is its report."""

    type: ClassVar[str] = "RecipientsAdded"
    source: str
    counts: Mapping[str, int]


@frozen
class Scheduled(_Campaign):
    """The campaign is to start by itself at `due_at`."""

    type: ClassVar[str] = "Scheduled"
    due_at: datetime


@frozen
class Unscheduled(_Campaign):
    """It is not to start by itself any more."""

    type: ClassVar[str] = "Unscheduled"


@frozen
class Started(_Campaign):
    """Its mails may leave; `by` is `schedule` where nobody said so just now."""

    type: ClassVar[str] = "Started"
    by: str | None = None


@frozen
class Paused(_Campaign):
    """No further mail may leave, until `resume_at` where one is set."""

    type: ClassVar[str] = "Paused"
    reason: str
    resume_at: datetime | None = None


@frozen
class Resumed(_Campaign):
    """Its mails may leave again; `by` as in Started."""

    type: ClassVar[str] = "Resumed"
    by: str | None = None


@frozen
class CampaignCancelled(_Campaign):
    """It was given up; what still waits will not be sent."""

    type: ClassVar[str] = "Cancelled"


@frozen
class Completed(_Campaign):
    """Nothing of its audience is left to do, as `counts` per delivery status prove."""

    type: ClassVar[str] = "Completed"
    counts: Mapping[str, int]


@frozen
class Reopened(_Campaign):
    """After completion there is work again: a retry, or new people."""

    type: ClassVar[str] = "Reopened"
    by: str


CampaignEvent: TypeAlias = (
    Drafted
    | Changed
    | RecipientsAdded
    | Scheduled
    | Unscheduled
    | Started
    | Paused
    | Resumed
    | CampaignCancelled
    | Completed
    | Reopened
)
