"""Imports, deliveries and the log as JSON, for the API and its client alike."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from attrs import frozen

from .documents import CampaignStatus, Counts, DeliveryStatus
from .public import Id

Outcome = Literal["duplicate_key", "duplicate_address", "invalid", "suppressed"]


@frozen
class ImportLine:
    """A row that was not taken as it was."""

    line: int
    """Where it stands in what was sent: the line, or in a JSON list the number of the item, from 1."""
    outcome: Outcome
    reason: str | None


@frozen
class ImportReport:
    """What became of the rows of an import; the counts sum to `rows`."""

    rows: int
    accepted: int
    duplicate_key: int
    duplicate_address: int
    invalid: int
    suppressed: int
    """Queued and skipped at once, so that their history says why."""
    lines: tuple[ImportLine, ...]
    """The first 10,000 that were not accepted, in order."""
    lines_omitted: int


@frozen
class Event:
    """Something that happened; `delivery_id` is 0 for a campaign itself, `campaign_id` is 0 for contacts."""

    position: Id
    block: Id | None
    """The sealed block that it is in; null: in none yet."""
    campaign_id: Id
    delivery_id: Id
    version: int | None
    """Counts the changes of one stream; null for what changes no state, such as feedback."""
    type: str
    at: datetime
    body: dict[str, Any]


@frozen
class EventPage:
    """Events in the log's order."""

    items: tuple[Event, ...]
    next: str
    """Where to go on, always: what is committed later comes behind it."""
    more: bool
    """Whether there is more right now."""


@frozen
class Progress:
    """How a campaign stands by the sealed log; its counts hold for `block`."""

    campaign_id: Id
    status: CampaignStatus
    audience: int
    counts: Counts
    first_sent_at: datetime | None
    last_sent_at: datetime | None
    sealed_at: datetime | None
    block: Id


@frozen
class CampaignName:
    """Which campaign."""

    id: Id
    name: str


@frozen
class RecipientName:
    """Which recipient; key and address are null for a person who was erased."""

    delivery_id: Id
    key: str | None
    email: str | None


@frozen
class Delivery:
    """One person in one campaign, and how their mail stands."""

    delivery_id: Id
    campaign: CampaignName
    key: str | None
    email: str | None
    name: str | None
    data: dict[str, Any] | None
    status: DeliveryStatus
    attempt: int
    feedback: Literal["delivered", "bounced", "complained"] | None
    due_at: datetime | None
    """When it will be tried; null unless it is pending."""
    last_code: str | None
    """What the last try that did not succeed ended with."""
    sent_at: datetime | None
    message_id: str | None
    """The provider's name for it."""
    version: int


@frozen
class History:
    """Everything that happened to one delivery, in order."""

    campaign: CampaignName
    recipient: RecipientName
    items: tuple[Event, ...]


@frozen
class AsOf:
    """How many recipients of a campaign were in each state at a time, by the last block sealed until then."""

    campaign: CampaignName
    at: datetime
    block: Id | None
    """Null: nothing had been sealed yet."""
    sealed_at: datetime | None
    counts: Counts
    final: bool
    """A later block is there, so the answer stays the same for ever."""
    unsealed: int
    """Events of the campaign that are in no block yet, and so not in the answer."""


@frozen
class Difference:
    """Something that is not as the log says."""

    campaign_id: Id
    delivery_id: Id
    position: Id | None
    expected: str
    actual: str


@frozen
class Verification:
    """Whether the tables are what the log says."""

    equal: bool
    checked: int
    total: int
    differences: tuple[Difference, ...]
    """The first 1,000."""
    unsealed: int | None
    """Events that are in no block yet, which is no difference; null where there are no blocks."""


@frozen
class Step:
    """A line of a replay: an event and the state of its stream after it. A line with `problem` ends it early."""

    event: Event
    state: dict[str, Any]


def delivery_of(row: Mapping[str, Any]) -> Delivery:
    """The public form of what `find_delivery` finds."""
    named = ("key", "email", "name", "data", "status", "attempt", "feedback", "due_at")
    came_to = ("last_code", "sent_at", "message_id", "version")
    return Delivery(
        delivery_id=Id(row["delivery_id"]),
        campaign=CampaignName(Id(row["campaign_id"]), row["campaign"]),
        **{name: row[name] for name in (*named, *came_to)},
    )
