"""From what a provider said to what is written down: the event of the log, and the row beside it."""

from __future__ import annotations

import hashlib
from typing import Any

from ...events.codec import body_of
from ...events.text import scrub
from ...events.types import Bounced, Clicked, Complained, Delayed, Delivered, Opened, Unsubscribed
from ...events.types import Feedback as Event
from ...messages.addresses import InvalidAddress, normalise
from .vocabulary import Fault, Feedback, Item, Kind

BY_PROVIDER = "provider"
"""`automatic` of an open or a click that the provider takes for a machine's."""


def event_of(said: Feedback, provider: str) -> Event | None:
    """What the log has of it; None where it changes nothing for anybody."""
    at = said.occurred_at
    automatic = BY_PROVIDER if said.machine else None
    match said.meaning.kind:
        case Kind.DELIVERED:
            return Delivered(provider=provider, occurred_at=at)
        case Kind.DEFERRED:
            return Delayed(provider=provider, occurred_at=at)
        case Kind.BOUNCED:
            return Bounced(str(said.meaning.bounce_class), said.code, provider=provider, occurred_at=at)
        case Kind.DROPPED | Kind.FAILED:
            return Bounced(str(said.meaning.kind), said.code, provider=provider, occurred_at=at)
        case Kind.OPENED:
            return Opened(automatic, provider=provider, occurred_at=at)
        case Kind.CLICKED:
            return Clicked(_link(said.link), automatic, provider=provider, occurred_at=at)
        case Kind.COMPLAINED:
            return Complained(provider=provider, occurred_at=at)
        case Kind.UNSUBSCRIBED:
            return Unsubscribed(provider, provider=provider, occurred_at=at)
    return None


def row_of(said: Feedback, provider: str, item: int) -> dict[str, Any]:
    """The columns of `read_feedback` in schema.sql."""
    event = event_of(said, provider)
    campaign, delivery = said.own or (None, None)
    return {
        "item": item,
        "provider": provider,
        "native_key": said.native_key and scrub(said.native_key),
        "natural_key": said.natural_key.hex(),
        "kind": said.meaning.kind,
        "bounce_class": said.meaning.bounce_class,
        "suppress": said.meaning.suppress,
        "scope": said.meaning.scope,
        "event": None if event is None else event.type,
        "body": {} if event is None else body_of(event),
        "occurred_at": said.occurred_at,
        "recipient": _normal(said.recipient),
        "own_campaign": campaign,
        "own_delivery": delivery,
        "reference": None if said.own else said.delivery_ref,
        "message_id": said.message_id,
    }


def rows_of(items: tuple[Item, ...], provider: str) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of what was read, and in words what was not."""
    rows = [row_of(item, provider, place) for place, item in enumerate(items) if isinstance(item, Feedback)]
    faults = [f"item {place}: {item.reason}" for place, item in enumerate(items) if isinstance(item, Fault)]
    return rows, "; ".join(faults)[:1000] or None


def _normal(recipient: str | None) -> str | None:
    """An address that we could never have written to is nobody's."""
    try:
        return None if recipient is None else normalise(recipient).full
    except InvalidAddress:
        return None


def _link(target: str | None) -> str | None:
    return None if target is None else hashlib.sha256(target.encode()).hexdigest()[:32]
