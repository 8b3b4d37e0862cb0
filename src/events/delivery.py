"""What may happen to one mail for one recipient; `attempt` counts its tries from 1."""

from datetime import datetime
from typing import ClassVar, TypeAlias

from attrs import field, frozen
from attrs.validators import ge

from .stream import Event, StreamKind

POLICY = "policy"
"""`Requeued.by` when the campaign's policy did it; any other value names the operator."""


@frozen
class _Delivery(Event):
    stream: ClassVar[StreamKind] = StreamKind.DELIVERY


@frozen
class Observation(_Delivery):
    """What is noted beside the state and changes none."""

    versioned: ClassVar[bool] = False


@frozen
class Queued(_Delivery):
    """The recipient was written down; `digest` (digest.py) seals who it is."""

    type: ClassVar[str] = "Queued"
    source: str
    digest: str
    due_at: datetime


@frozen
class Claimed(_Delivery):
    """A worker took the row; committed before the mail may leave."""

    type: ClassVar[str] = "Claimed"
    claim_id: str
    worker: str
    sender: str
    attempt: int = field(validator=ge(1))


@frozen
class Sent(_Delivery):
    """The provider accepted. What is None is not known: nothing was rendered, or evidence lacked it."""

    type: ClassVar[str] = "Sent"
    attempt: int = field(validator=ge(1))
    provider: str
    message_id: str | None = None
    content_sha256: str | None = None
    template: str | None = None


@frozen
class Deferred(_Delivery):
    """The provider refused for now; due again at `due_at`."""

    type: ClassVar[str] = "Deferred"
    attempt: int = field(validator=ge(1))
    class_: str
    due_at: datetime
    code: str | None = None


@frozen
class Released(_Delivery):
    """The worker gave the row back, certain that it was not accepted; the attempt is not burned."""

    type: ClassVar[str] = "Released"
    reason: str
    due_at: datetime


@frozen
class Failed(_Delivery):
    """The provider refused for good, or the tries are exhausted."""

    type: ClassVar[str] = "Failed"
    attempt: int = field(validator=ge(1))
    class_: str
    code: str | None = None


@frozen
class OutcomeUnknown(_Delivery):
    """The provider may have it and nobody recorded the answer."""

    type: ClassVar[str] = "OutcomeUnknown"
    attempt: int = field(validator=ge(1))
    reason: str


@frozen
class Requeued(_Delivery):
    """Policy `resend` (`by` is POLICY) or an operator (`by` says who) wants another try."""

    type: ClassVar[str] = "Requeued"
    reason: str
    by: str
    due_at: datetime


@frozen
class Skipped(_Delivery):
    """The recipient may not be mailed: suppressed, unsubscribed, erased, invalid or expired."""

    type: ClassVar[str] = "Skipped"
    reason: str


@frozen
class Cancelled(_Delivery):
    """The campaign was cancelled while the row waited, or before it was released."""

    type: ClassVar[str] = "Cancelled"


@frozen
class Evidence(Observation):
    """A late or foreign outcome of claim `of` came and must not be applied."""

    type: ClassVar[str] = "Evidence"
    of: str
    attempt: int = field(validator=ge(0))  # the row's own, where the outcome brings none
    outcome: str


@frozen
class _Told(Observation):
    """What a provider, or a reader by one of our links, told us; without these it was one of our own links.

    `feedback` is the id of the table's row, which Retracted names; `occurred_at` is the provider's word for it.
    """

    provider: str | None = field(default=None, kw_only=True)
    feedback: str | None = field(default=None, kw_only=True)
    occurred_at: datetime | None = field(default=None, kw_only=True)


@frozen
class Retracted(Observation):
    """What stands under the id `feedback` as the event `was` was read wrongly, and does not count from here on."""

    type: ClassVar[str] = "Retracted"
    feedback: str
    was: str


@frozen
class Delivered(_Told):
    """The recipient's server took the mail."""

    type: ClassVar[str] = "Delivered"


@frozen
class Bounced(_Told):
    """The mail came back after it had been accepted; `code` is the status that the receiver gave.

    `kind`: hard (no such mailbox), soft (perhaps another day), block (refused for who sent it, or what), undetermined;
    or dropped (never tried: the provider's own list), failed (the provider could not make a mail of it).
    """

    type: ClassVar[str] = "Bounced"
    kind: str
    code: str | None = None


@frozen
class Complained(_Told):
    """The recipient called it spam."""

    type: ClassVar[str] = "Complained"


@frozen
class Opened(_Told):
    """Somebody or something loaded the mail's pictures; `automatic`: why it is taken for something."""

    type: ClassVar[str] = "Opened"
    automatic: str | None = None


@frozen
class Clicked(_Told):
    """Somebody or something followed a link of the mail; `automatic` as in Opened.

    `link` is the beginning of the sha256 of its target, in hex: the target may say who it was made for.
    """

    type: ClassVar[str] = "Clicked"
    link: str | None = None
    automatic: str | None = None


@frozen
class Unsubscribed(_Told):
    """The recipient asked through this mail for no more: of this `list`, or at all (None).

    `channel`: one_click (RFC 8058), page, or whoever told us.
    """

    type: ClassVar[str] = "Unsubscribed"
    channel: str | None = None
    list: str | None = None


@frozen
class Delayed(_Told):
    """The provider still tries to hand it over."""

    type: ClassVar[str] = "Delayed"


Feedback: TypeAlias = Delivered | Bounced | Complained | Opened | Clicked | Unsubscribed | Delayed | Retracted

Change: TypeAlias = (
    Queued | Claimed | Sent | Deferred | Released | Failed | OutcomeUnknown | Requeued | Skipped | Cancelled
)

DeliveryEvent: TypeAlias = Change | Evidence | Feedback
