"""Postmark: one record to a post; nothing is signed, a user and a password stand in the webhook's address.

https://postmarkapp.com/developer/webhooks/webhooks-overview
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from .bounces import status_of
from .vocabulary import (
    BLOCK,
    COMPLAINED,
    DROPPED_BOUNCED,
    DROPPED_COMPLAINED,
    HARD,
    LONG,
    SOFT,
    UNKNOWN,
    UNSUBSCRIBED,
    Fault,
    Feedback,
    Item,
    Json,
    Kind,
    Meaning,
    Proof,
    Refused,
    address,
    key,
    moment,
    own,
    read_object,
    text,
)

NAME: Final = "postmark"

NOT_OURS: Final = 401
"""Never 403, at which Postmark gives the record up for good."""

# By the word `Type`: published lists of its numbers disagree.
_BOUNCES = {
    "HardBounce": HARD,
    "BadEmailAddress": HARD,
    "SoftBounce": SOFT,
    "Unknown": SOFT,
    "Blocked": BLOCK,
    "DMARCPolicy": BLOCK,
    "SpamNotification": BLOCK,
    "VirusNotification": BLOCK,
    "ChallengeVerification": BLOCK,
    "Transient": Meaning(Kind.DEFERRED),
    "DnsError": Meaning(Kind.DEFERRED),
    "Unsubscribe": UNSUBSCRIBED,
    "Subscribe": Meaning(Kind.RESUBSCRIBED),
    "SpamComplaint": COMPLAINED,
    "AutoResponder": Meaning(Kind.AUTOREPLY),
    "AddressChange": Meaning(Kind.AUTOREPLY),
    "TemplateRenderingFailed": Meaning(Kind.FAILED),
    "SMTPApiError": Meaning(Kind.FAILED),
    "Unconfirmed": Meaning(Kind.FAILED),
}
# A record of its own, and its kind of time and recipient.
_TIMES = {
    "Delivery": "DeliveredAt",
    "Bounce": "BouncedAt",
    "SpamComplaint": "BouncedAt",
    "Open": "ReceivedAt",
    "Click": "ReceivedAt",
    "SubscriptionChange": "ChangedAt",
}


def verify(headers: Mapping[str, str], raw: bytes, logins: Sequence[str]) -> Proof:
    """Raises Refused. `logins` are user:password, any of which may be shown; `headers` forget the case of names."""
    scheme, _, shown = headers.get("Authorization", "").partition(" ")
    try:
        login = base64.b64decode(shown.strip(), validate=True)
    except (binascii.Error, ValueError):
        login = b""
    right = [hmac.compare_digest(login, one.encode()) for one in logins]  # all of them, whichever fits
    if scheme.lower() != "basic" or not any(right):
        raise Refused(NOT_OURS, "user and password are not the ones of this webhook")
    return Proof(hashlib.sha256(raw).digest())


def parse(raw: bytes) -> tuple[Item, ...]:
    """The one record of a post."""
    record = read_object(raw)
    if record is None:
        return (Fault("the body is no JSON object"),)
    try:
        return (_read(record),)
    except ValueError as error:
        return (Fault(str(error)),)


def _read(record: Json) -> Feedback:
    name = text(record.get("RecordType"))
    if name is None:
        raise ValueError("a record without a RecordType")
    recipient = address(record.get("Recipient")) or address(record.get("Email"))
    at = record.get(_TIMES.get(name, ""))
    message_id, native_id = text(record.get("MessageID")), text(record.get("ID"))
    kind, link = text(record.get("Type")), text(record.get("OriginalLink"), LONG)
    metadata = record.get("Metadata")
    reference = text(metadata.get("delivery_id")) if isinstance(metadata, dict) else None
    words = text(record.get("Details"), LONG)
    return Feedback(
        meaning=_meaning(name, record),
        recipient=recipient,
        occurred_at=moment(at) if name in _TIMES else None,
        # Message id and record type alone would lose the second open, and the second link.
        natural_key=key(NAME, name, message_id, (recipient or "").lower(), at, link or kind, _change(record)),
        native_id=native_id,
        native_key=native_id and f"{name}/{native_id}",
        delivery_ref=reference,
        message_id=message_id,
        own=own(reference, message_ids=(message_id,)),
        code=status_of(None, words) if name == "Bounce" else None,
        link=link,
    )


def _change(record: Json) -> str | None:
    """Somebody who leaves, comes back and leaves within a second is not one change."""
    return str(record.get("SuppressSending")) if record.get("RecordType") == "SubscriptionChange" else None


def _meaning(name: str, record: Json) -> Meaning:
    match name:
        case "Delivery":
            return Meaning(Kind.DELIVERED)
        case "Open":
            return Meaning(Kind.OPENED)
        case "Click":
            return Meaning(Kind.CLICKED)
        case "SpamComplaint":
            return COMPLAINED
        case "Bounce":
            return _BOUNCES.get(text(record.get("Type")) or "", UNKNOWN)
        case "SubscriptionChange":
            return _subscription(record)
    return UNKNOWN


def _subscription(record: Json) -> Meaning:
    """It comes for bounces and complaints too, which nobody asked for: those are records of their own."""
    if record.get("SuppressSending") is False:
        return Meaning(Kind.RESUBSCRIBED)
    match text(record.get("SuppressionReason")):
        case "HardBounce":
            return DROPPED_BOUNCED
        case "SpamComplaint":
            return DROPPED_COMPLAINED
        case "ManualSuppression":
            return UNSUBSCRIBED
    return UNKNOWN
