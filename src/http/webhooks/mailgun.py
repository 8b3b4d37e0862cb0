"""Mailgun: one event to a post; the signature covers a timestamp and a token, not the event.

https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from ...events.text import scrub
from .bounces import basic_of, final, status_of
from .vocabulary import (
    BLOCK,
    COMPLAINED,
    DROPPED,
    DROPPED_BOUNCED,
    DROPPED_COMPLAINED,
    DROPPED_UNSUBSCRIBED,
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
    digest,
    epoch,
    inner,
    key,
    own,
    read_object,
    text,
)

NAME: Final = "mailgun"

STOP: Final = 406
"""What ends its retries; anything but this and 200 brings the post again for eight hours."""

NOT_OURS: Final = 401
"""A wrong signature may come of a wrong key here: then the same post is welcome later."""

_MEANINGS = {
    "accepted": Meaning(Kind.ACCEPTED),
    "delivered": Meaning(Kind.DELIVERED),
    "rejected": Meaning(Kind.FAILED),
    "opened": Meaning(Kind.OPENED),
    "clicked": Meaning(Kind.CLICKED),
    "complained": COMPLAINED,
    "unsubscribed": UNSUBSCRIBED,
}
# Mailgun's own codes and words for what it did not even try, or gave up by itself.
_OWN_CODES = {
    498: HARD,  # the domain takes no mail
    602: SOFT,  # too old
    605: DROPPED_BOUNCED,
    606: DROPPED_UNSUBSCRIBED,
    607: DROPPED_COMPLAINED,
}
_OWN_REASONS = {
    "old": SOFT,
    "espblock": BLOCK,
    "suppress-bounce": DROPPED_BOUNCED,
    "suppress-unsubscribe": DROPPED_UNSUBSCRIBED,
    "suppress-complaint": DROPPED_COMPLAINED,
}


def verify(headers: Mapping[str, str], raw: bytes, keys: Sequence[str]) -> Proof:
    """Raises Refused. `keys` are webhook signing keys, any of which may have signed."""
    post = read_object(raw)
    if post is None or not isinstance(post.get("event-data"), dict):
        raise Refused(STOP, "no event in it")
    signature = inner(post, "signature")
    timestamp, token, shown = (signature.get(name) for name in ("timestamp", "token", "signature"))
    if not (isinstance(timestamp, str | int) and isinstance(token, str) and isinstance(shown, str) and token):
        raise Refused(NOT_OURS, "no signature")
    signed = f"{timestamp}{token}".encode("utf-8", "replace")
    if not any(_matches(signed, shown, one) for one in keys):
        raise Refused(NOT_OURS, "the signature does not fit the key")
    try:
        signed_at = epoch(timestamp)
    except ValueError:
        raise Refused(NOT_OURS, "the timestamp is no time") from None
    # The event is not signed: a token that was seen stands for one content alone.
    return Proof(digest([token, post["event-data"]]), signed_at, scrub(token)[:100])


def _matches(signed: bytes, shown: str, one: str) -> bool:
    right = hmac.new(one.encode(), signed, hashlib.sha256).hexdigest()
    return hmac.compare_digest(right.encode(), shown.lower().encode("utf-8", "replace"))


def parse(raw: bytes) -> tuple[Item, ...]:
    """The one event of a post."""
    event = inner(read_object(raw) or {}, "event-data")
    try:
        return (_read(event),)
    except ValueError as error:
        return (Fault(str(error)),)


def _read(event: Json) -> Feedback:
    name = text(event.get("event"))
    if name is None:
        raise ValueError("an event without a name")
    headers = inner(event, "message", "headers")
    message_id = text(headers.get("message-id"))
    message_id = message_id and message_id.strip("<>")
    recipient = address(event.get("recipient")) or address(headers.get("to"))
    occurred_at = epoch(event.get("timestamp"))
    native_id = text(event.get("id"))
    reference = text(inner(event, "user-variables").get("delivery_id"))
    link = text(event.get("url"), LONG)
    status = inner(event, "delivery-status")
    words = text(status.get("message"), LONG) or text(status.get("description"), LONG)
    engaged = name in ("opened", "clicked")
    return Feedback(
        meaning=_failure(event, status, words) if name == "failed" else _MEANINGS.get(name, UNKNOWN),
        recipient=recipient,
        occurred_at=occurred_at,
        natural_key=key(
            NAME,
            native_id,
            name,
            message_id,
            (recipient or "").lower(),
            event["timestamp"],
            link,
            event.get("severity"),
        ),
        native_id=native_id,
        # Its ids are unique within a day.
        native_key=native_id and f"{occurred_at.date()}/{native_id}",
        delivery_ref=reference,
        message_id=message_id,
        own=own(reference, message_ids=(message_id,)),
        machine=bool(inner(event, "client-info").get("bot")) if engaged else None,
        code=status_of(status.get("enhanced-code"), words) if name == "failed" else None,
        link=link,
    )


def _failure(event: Json, status: Json, words: str | None) -> Meaning:
    if event.get("severity") == "temporary":
        return Meaning(Kind.DEFERRED)
    reason, code = text(event.get("reason")) or "", status.get("code")
    if reason in _OWN_REASONS:
        return _OWN_REASONS[reason]
    if isinstance(code, int) and code in _OWN_CODES:
        return _OWN_CODES[code]
    if reason.startswith("suppress"):
        return DROPPED
    # What came back after it had been delivered tells its true code apart.
    return final(
        basic_of(status.get("bounce-code") or code, words), status_of(status.get("enhanced-code"), words), words
    )
