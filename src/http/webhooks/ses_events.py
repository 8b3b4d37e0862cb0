"""The events of Amazon SES, as event publishing and as feedback notifications write them."""

from __future__ import annotations

from typing import Any

from .bounces import basic_of, final, status_of
from .vocabulary import (
    BLOCK,
    COMPLAINED,
    DROPPED_BOUNCED,
    DROPPED_COMPLAINED,
    DROPPED_UNSUBSCRIBED,
    HARD,
    LEFT_LIST,
    LONG,
    SOFT,
    UNDETERMINED,
    UNKNOWN,
    UNSUBSCRIBED,
    Feedback,
    Json,
    Kind,
    Meaning,
    address,
    inner,
    key,
    moment,
    own,
    text,
    texts,
)

# The name of the object inside, and of the list in it that says who is meant. Never `destination` of the mail, where
# there is such a list: it names everybody.
_PARTS: dict[str, tuple[str, str | None]] = {
    "Bounce": ("bounce", "bouncedRecipients"),
    "Complaint": ("complaint", "complainedRecipients"),
    "Delivery": ("delivery", "recipients"),
    "Send": ("send", None),
    "Reject": ("reject", None),
    "Open": ("open", None),
    "Click": ("click", None),
    "Rendering Failure": ("failure", None),
    "DeliveryDelay": ("deliveryDelay", "delayedRecipients"),
    "Subscription": ("subscription", None),
}
_MEANINGS = {
    "Delivery": Meaning(Kind.DELIVERED),
    "Send": Meaning(Kind.ACCEPTED),
    "Reject": Meaning(Kind.FAILED),
    "Rendering Failure": Meaning(Kind.FAILED),
    "Open": Meaning(Kind.OPENED),
    "Click": Meaning(Kind.CLICKED),
    "DeliveryDelay": Meaning(Kind.DEFERRED),
}
_PERMANENT = {
    "General": HARD,
    "NoEmail": HARD,
    "Suppressed": DROPPED_BOUNCED,
    "OnAccountSuppressionList": DROPPED_BOUNCED,
    "UnsubscribedRecipient": DROPPED_UNSUBSCRIBED,
}
_TRANSIENT = {
    "MailboxFull": SOFT,
    "MessageTooLarge": SOFT,
    "CustomTimeoutExceeded": SOFT,
    "ContentRejected": BLOCK,
    "AttachmentRejected": BLOCK,
}


def read_event(event: Json, native_id: str | None) -> tuple[Feedback, ...]:
    """One for each recipient. Raises ValueError."""
    name = text(event.get("eventType")) or text(event.get("notificationType"))
    if name is None:
        raise ValueError("an event without a type")
    part, listed = _PARTS.get(name, ("", None))
    mail, said = inner(event, "mail"), inner(event, part)
    at = moment(said.get("timestamp") or mail.get("timestamp"))
    message_id = text(mail.get("messageId"))
    reference = next(iter(texts(inner(mail, "tags").get("delivery_id"))), None)
    ours = own(reference, _header(mail, "x-postledger-delivery"), message_ids=(_header(mail, "message-id"),))
    link, feedback_id = text(said.get("link"), LONG), text(said.get("feedbackId"))
    people = said.get(listed) if listed else mail.get("destination")
    found = []
    for one in people if isinstance(people, list) and people else [None]:
        who = one if isinstance(one, dict) else {"emailAddress": one}
        recipient = address(who.get("emailAddress"))
        named = (recipient or "").lower()
        words = text(who.get("diagnosticCode"), LONG)
        found.append(
            Feedback(
                meaning=_meaning(name, said, who, words),
                recipient=recipient,
                occurred_at=at,
                # Two feeds that are on at once double each bounce, under other ids of SNS.
                natural_key=key("ses", feedback_id, named)
                if feedback_id
                else key("ses", name, message_id, named, at.isoformat(), link),
                native_id=native_id,
                native_key=native_id and f"{native_id}/{named}",
                delivery_ref=reference,
                message_id=message_id,
                own=ours,
                code=status_of(who.get("status"), words) if name in ("Bounce", "DeliveryDelay") else None,
                link=link,
            )
        )
    return tuple(found)


def _header(mail: Json, name: str) -> str | None:
    """A header of the mail as it was given to SES, which has put a Message-ID of its own in its place."""
    headers = mail.get("headers")
    for one in headers if isinstance(headers, list) else ():
        if isinstance(one, dict) and str(one.get("name")).lower() == name:
            return text(one.get("value"))
    return None


def _meaning(name: str, said: Json, who: Json, words: str | None) -> Meaning:
    match name:
        case "Bounce":
            return _bounce(said, who, words)
        case "Complaint":
            return _complaint(said)
        case "Subscription":
            return _subscription(said)
    return _MEANINGS.get(name, UNKNOWN)


def _bounce(said: Json, who: Json, words: str | None) -> Meaning:
    """It comes after the last try: transient is final for this mail too."""
    kind, detail = text(said.get("bounceType")), text(said.get("bounceSubType")) or ""
    status = status_of(who.get("status"), words)
    if kind == "Permanent":
        return _PERMANENT.get(detail) or final(basic_of(None, words), status, words)
    if kind == "Transient":
        if detail in _TRANSIENT:
            return _TRANSIENT[detail]
        # `General` may be a domain that does not exist, or somebody's holiday.
        return HARD if final(basic_of(None, words), status, words) is HARD else SOFT
    return UNDETERMINED


def _complaint(said: Json) -> Meaning:
    if text(said.get("complaintFeedbackType")) == "not-spam":
        return UNKNOWN  # somebody took it out of the spam folder
    if text(said.get("complaintSubType")) == "OnAccountSuppressionList":
        return DROPPED_COMPLAINED
    return COMPLAINED


def _subscription(said: Json) -> Meaning:
    now, before = inner(said, "newTopicPreferences"), inner(said, "oldTopicPreferences")
    if now.get("unsubscribeAll") is True:
        return UNSUBSCRIBED
    changed = set(_topics(now).items()) - set(_topics(before).items())
    statuses = {status for _, status in changed}
    if "OptOut" in statuses:
        return LEFT_LIST
    return Meaning(Kind.RESUBSCRIBED) if statuses or before.get("unsubscribeAll") is True else UNKNOWN


def _topics(preferences: Json) -> dict[str, str]:
    listed: Any = preferences.get("topicSubscriptionStatus") or preferences.get("topicDefaultSubscriptionStatus")
    return {
        str(one.get("topicName")): str(one.get("subscriptionStatus"))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    }
