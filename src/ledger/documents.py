"""Campaigns and recipients as JSON: ids as strings, times as RFC 3339."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ..database import Connection
from ..events.text import write_moment
from . import campaigns, lengths
from .campaigns import DEFAULT_SHARE, STATUSES, Campaign


async def campaign_document(conn: Connection, campaign_id: int) -> dict[str, Any]:
    """The public form of a campaign. Raises NotFoundError."""
    return as_document(await campaigns.read(conn, campaign_id), await campaigns.counts(conn, campaign_id))


def as_document(campaign: Campaign, counts: Mapping[str, int]) -> dict[str, Any]:
    """`counts`: audience and the seven of STATUSES."""
    settings = campaign.settings
    return {
        "id": str(campaign.id),
        "name": settings.name,
        "kind": settings.kind,
        "generation": campaign.generation,
        "status": campaign.status,
        "pause": _pause(campaign),
        "version": campaign.version,
        "audience": counts["audience"],
        "counts": {status: counts[status] for status in STATUSES},
        "created_at": moment(campaign.created_at),
        "scheduled_at": moment(campaign.starts_at),
        "started_at": moment(campaign.started_at),
        "finished_at": moment(campaign.finished_at),
        "subject": campaign.source.subject,
        "from": settings.mail_from,
        "reply_to": settings.reply_to,
        "list": campaign.list_name,
        "template": campaign.source.hash,
        "sender": {"id": str(settings.sender_id), "name": campaign.sender_name, "url": campaign.sender_url},
        "unknown": settings.unknown,
        "attempts": settings.attempts,
        "give_up": lengths.write(settings.give_up),
        "priority": settings.priority,
        "rate": campaign.rate,
        "expires": _length(settings.expires),
        "missed": _length(settings.missed_after),
        "max_errors": max_errors(settings.max_errors),
        "track": list(settings.track),
    }


def recipient_document(row: Mapping[str, Any]) -> dict[str, Any]:
    """The public form of a recipient."""
    return {
        "delivery_id": str(row["delivery_id"]),
        "key": row["key"],
        "email": row["email"],
        "name": row["name"],
        "status": row["status"],
        "attempt": row["attempt"],
        "feedback": row["feedback"],
        "due_at": moment(row["due_at"]),
        "version": row["version"],
    }


def _length(value: timedelta | None) -> str | None:
    return None if value is None else lengths.write(value)


def max_errors(percent: int | None) -> str | None:
    """The share of failures that pauses a campaign; None: none does."""
    share = DEFAULT_SHARE if percent is None else percent
    return f"{share}%" if share < 100 else None


def moment(value: datetime | None) -> str | None:
    """RFC 3339 with microseconds and Z."""
    return None if value is None else write_moment(value)


def _pause(campaign: Campaign) -> dict[str, Any] | None:
    if campaign.pause_reason is None:
        return None
    return {"reason": campaign.pause_reason, "resume_at": moment(campaign.resume_at)}
