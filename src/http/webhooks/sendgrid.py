"""SendGrid: an array of events to a post; the signature covers the bytes as they came.

https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_public_key

from .bounces import basic_of, final, status_of
from .vocabulary import (
    BLOCK,
    COMPLAINED,
    DROPPED,
    DROPPED_BOUNCED,
    DROPPED_COMPLAINED,
    DROPPED_LEFT_LIST,
    DROPPED_UNSUBSCRIBED,
    HARD,
    LEFT_LIST,
    LONG,
    SOFT,
    UNDETERMINED,
    UNKNOWN,
    UNSUBSCRIBED,
    Fault,
    Feedback,
    Item,
    Kind,
    Meaning,
    Proof,
    Refused,
    address,
    epoch,
    key,
    own,
    read_json,
    text,
)

NAME: Final = "sendgrid"

NOT_OURS: Final = 401
"""Whatever is not 2xx brings the post again, for a day."""

_SIGNATURE = "X-Twilio-Email-Event-Webhook-Signature"
_TIMESTAMP = "X-Twilio-Email-Event-Webhook-Timestamp"

_MEANINGS = {
    "processed": Meaning(Kind.ACCEPTED),
    "delivered": Meaning(Kind.DELIVERED),
    "deferred": Meaning(Kind.DEFERRED),
    "open": Meaning(Kind.OPENED),
    "click": Meaning(Kind.CLICKED),
    "spamreport": COMPLAINED,
    "unsubscribe": UNSUBSCRIBED,
    "group_unsubscribe": LEFT_LIST,
    "group_resubscribe": Meaning(Kind.RESUBSCRIBED),
}
_CLASSIFICATIONS = {
    "invalid address": HARD,
    "mailbox unavailable": SOFT,
    "technical": SOFT,
    "technical failure": SOFT,
    "content": BLOCK,
    "reputation": BLOCK,
    "frequency or volume": BLOCK,
    "frequency/volume": BLOCK,
    "frequency or volume too high": BLOCK,
    "unclassified": UNDETERMINED,
}
# By how the reason of `dropped` begins; the longer before the shorter.
_DROPPED = (
    ("invalid smtpapi", Meaning(Kind.FAILED)),
    ("spam content", Meaning(Kind.FAILED)),
    ("recipient list over", Meaning(Kind.FAILED)),
    ("bounced address", DROPPED_BOUNCED),
    ("invalid", DROPPED_BOUNCED),
    ("spam reporting", DROPPED_COMPLAINED),
    ("unsubscribed from", DROPPED_LEFT_LIST),
    ("unsubscribed", DROPPED_UNSUBSCRIBED),
)


def verify(headers: Mapping[str, str], raw: bytes, keys: Sequence[str]) -> Proof:
    """Raises Refused. `keys` are public keys, base64 of their DER; `headers` forget the case of their names."""
    shown, timestamp = headers.get(_SIGNATURE), headers.get(_TIMESTAMP)
    if not shown or not timestamp:
        raise Refused(NOT_OURS, "no signature")
    try:
        signature = base64.b64decode(shown, validate=True)
        signed_at = epoch(timestamp)
    except (binascii.Error, ValueError):
        raise Refused(NOT_OURS, "the signature or its timestamp is in no known form") from None
    signed = timestamp.encode("utf-8", "surrogateescape") + raw
    if not any(_matches(signed, signature, one) for one in keys):
        raise Refused(NOT_OURS, "the signature does not fit the key: nothing on the way may touch the body")
    return Proof(hashlib.sha256(raw).digest(), signed_at)


def public_key(text_: str) -> ec.EllipticCurvePublicKey:
    """The key as SendGrid shows it. Raises ValueError."""
    key_ = load_der_public_key(base64.b64decode(text_, validate=True))
    if not isinstance(key_, ec.EllipticCurvePublicKey):
        raise ValueError("not an elliptic-curve key")
    return key_


_key = lru_cache(maxsize=8)(public_key)


def _matches(signed: bytes, signature: bytes, one: str) -> bool:
    try:
        _key(one).verify(signature, signed, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def parse(raw: bytes) -> tuple[Item, ...]:
    """The events of a post, each for itself: one that cannot be read harms no other."""
    try:
        events = read_json(raw)
    except ValueError:
        return (Fault("the body is no JSON"),)
    if not isinstance(events, list):
        return (Fault("the body is no array"),)
    return tuple(_item(event) for event in events)


def _item(event: Any) -> Item:
    try:
        return _read(event)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Fault(str(error) if type(error) is ValueError else f"an event in no known form ({type(error).__name__})")


def _read(event: Any) -> Feedback:
    if not isinstance(event, dict):
        raise ValueError("an event that is no object")
    name = text(event.get("event"))
    if name is None:
        raise ValueError("an event without a name")
    recipient = address(event.get("email"))
    native_id = text(event.get("sg_event_id"))
    own_id = text(event.get("smtp-id"))
    full_id = text(event.get("sg_message_id"))
    message_id = full_id.partition(".")[0] if full_id else own_id and own_id.strip("<>")
    reference = text(event.get("delivery_id"))
    link = text(event.get("url"), LONG)
    told_apart = link or text(event.get("attempt")) or text(event.get("asm_group_id")) or text(event.get("type"))
    words = text(event.get("reason"), LONG) or text(event.get("response"), LONG)
    return Feedback(
        meaning=_meaning(name, event, words),
        recipient=recipient,
        occurred_at=epoch(event.get("timestamp")),
        # Its id may change when it tries again, or be missing.
        natural_key=key(
            NAME, full_id or own_id or reference, name, event["timestamp"], (recipient or "").lower(), told_apart
        ),
        native_id=native_id,
        native_key=native_id,
        delivery_ref=reference,
        message_id=message_id,
        own=own(reference, message_ids=(own_id,)),
        machine=bool(event["sg_machine_open"]) if "sg_machine_open" in event else None,
        code=status_of(event.get("status"), words) if name in ("bounce", "dropped", "deferred") else None,
        link=link,
    )


def _meaning(name: str, event: dict[str, Any], words: str | None) -> Meaning:
    if name == "bounce":
        return _bounce(event, words)
    if name == "dropped":
        reason = (text(event.get("reason")) or "").lower()
        return next((meaning for start, meaning in _DROPPED if reason.startswith(start)), DROPPED)
    return _MEANINGS.get(name, UNKNOWN)


def _bounce(event: dict[str, Any], words: str | None) -> Meaning:
    kind = text(event.get("type"))
    if kind == "blocked":
        return BLOCK
    if kind == "expired":
        return SOFT
    classification = (text(event.get("bounce_classification")) or "").lower()
    if classification in _CLASSIFICATIONS:
        return _CLASSIFICATIONS[classification]
    return final(basic_of(None, words), status_of(event.get("status"), words), words)
