"""Campaigns and recipients as JSON, for the command line and the API alike: ids as strings, times as RFC 3339."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from attrs import frozen

from ..database import Connection
from ..events.text import write_moment
from . import campaigns
from .campaigns import DEFAULT_SHARE, STATUSES
from .public import Id, named, write

CampaignStatus = Literal["draft", "scheduled", "sending", "paused", "completed", "cancelled"]
DeliveryStatus = Literal["pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown"]


@frozen
class Counts:
    """How many recipients stand where; together they are the audience."""

    pending: int
    sending: int
    sent: int
    failed: int
    skipped: int
    cancelled: int
    unknown: int


@frozen
class Pause:
    """Why a campaign rests, and when it goes on by itself; null: when somebody says so."""

    reason: str
    resume_at: datetime | None


@frozen
class SenderOf:
    """The way by which a campaign leaves; the URL is without its password."""

    id: Id
    name: str
    url: str


@frozen(kw_only=True)
class Campaign:
    """A campaign: what it is, how it stands, and what became of its recipients."""

    id: Id
    name: str
    kind: Literal["bulk", "standing"]
    generation: int
    status: CampaignStatus
    pause: Pause | None
    version: int
    """Of its own stream: what If-Match asks for, in quotes."""
    audience: int
    counts: Counts
    created_at: datetime
    scheduled_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    subject: str
    mail_from: str = named("from")
    reply_to: str | None
    list: str | None
    template: str
    """The hash of its letter."""
    sender: SenderOf
    unknown: Literal["resend", "hold"]
    attempts: int
    give_up: timedelta
    priority: int
    rate: str | None
    """The sender's, for all campaigns through it."""
    expires: timedelta | None
    missed: timedelta | None
    max_errors: str | None
    track: tuple[str, ...]


@frozen
class Recipient:
    """One person in one campaign, and how their mail stands."""

    delivery_id: Id
    key: str | None
    email: str | None
    name: str | None
    status: DeliveryStatus
    attempt: int
    feedback: Literal["delivered", "bounced", "complained"] | None
    due_at: datetime | None
    version: int


async def show(conn: Connection, campaign_id: int) -> Campaign:
    """The public form of a campaign. Raises NotFoundError."""
    return campaign_of(await campaigns.read(conn, campaign_id), await campaigns.counts(conn, campaign_id))


async def campaign_document(conn: Connection, campaign_id: int) -> dict[str, Any]:
    """The same as JSON knows it."""
    document: dict[str, Any] = write(await show(conn, campaign_id))
    return document


def campaign_of(campaign: campaigns.Campaign, counts: Mapping[str, int]) -> Campaign:
    """`counts`: audience and the seven of STATUSES."""
    settings: Any = campaign.settings  # the database's own checks bound kind and unknown
    status: Any = campaign.status
    reason = campaign.pause_reason
    return Campaign(
        id=Id(campaign.id),
        name=settings.name,
        kind=settings.kind,
        generation=campaign.generation,
        status=status,
        pause=None if reason is None else Pause(reason, campaign.resume_at),
        version=campaign.version,
        audience=counts["audience"],
        counts=Counts(**{status: counts[status] for status in STATUSES}),
        created_at=campaign.created_at,
        scheduled_at=campaign.starts_at,
        started_at=campaign.started_at,
        finished_at=campaign.finished_at,
        subject=campaign.source.subject,
        mail_from=settings.mail_from,
        reply_to=settings.reply_to,
        list=campaign.list_name,
        template=campaign.source.hash,
        sender=SenderOf(Id(settings.sender_id), campaign.sender_name, campaign.sender_url),
        unknown=settings.unknown,
        attempts=settings.attempts,
        give_up=settings.give_up,
        priority=settings.priority,
        rate=campaign.rate,
        expires=settings.expires,
        missed=settings.missed_after,
        max_errors=max_errors(settings.max_errors),
        track=tuple(settings.track),
    )


def recipient_of(row: Mapping[str, Any]) -> Recipient:
    """The public form of a recipient."""
    return Recipient(
        delivery_id=Id(row["delivery_id"]),
        key=row["key"],
        email=row["email"],
        name=row["name"],
        status=row["status"],
        attempt=row["attempt"],
        feedback=row["feedback"],
        due_at=row["due_at"],
        version=row["version"],
    )


def recipient_document(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same as JSON knows it."""
    document: dict[str, Any] = write(recipient_of(row))
    return document


def max_errors(percent: int | None) -> str | None:
    """The share of failures that pauses a campaign; None: none does."""
    share = DEFAULT_SHARE if percent is None else percent
    return f"{share}%" if share < 100 else None


def moment(value: datetime | None) -> str | None:
    """RFC 3339 with microseconds and Z."""
    return None if value is None else write_moment(value)
