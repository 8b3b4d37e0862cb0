"""Whatever is posted: reading gives things said and faults, verifying refuses; neither raises anything else."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from postledger.http.webhooks import mailgun, postmark, sendgrid, ses
from postledger.http.webhooks.notes import rows_of
from postledger.http.webhooks.reading import PARSERS
from postledger.http.webhooks.vocabulary import Fault, Feedback, Refused
from tests.web.webhooks import signing

NAMES = [
    "event-data",
    "event",
    "id",
    "timestamp",
    "recipient",
    "message",
    "headers",
    "message-id",
    "user-variables",
    "delivery_id",
    "severity",
    "reason",
    "delivery-status",
    "code",
    "bounce-code",
    "enhanced-code",
    "client-info",
    "bot",
    "url",
    "signature",
    "token",
    "email",
    "sg_event_id",
    "sg_message_id",
    "smtp-id",
    "type",
    "status",
    "bounce_classification",
    "sg_machine_open",
    "asm_group_id",
    "attempt",
    "Type",
    "TopicArn",
    "Message",
    "MessageId",
    "Timestamp",
    "SigningCertURL",
    "SubscribeURL",
    "eventType",
    "mail",
    "tags",
    "destination",
    "bounce",
    "bouncedRecipients",
    "emailAddress",
    "bounceType",
    "subscription",
    "newTopicPreferences",
    "topicSubscriptionStatus",
    "RecordType",
    "ID",
    "MessageID",
    "Email",
    "Recipient",
    "BouncedAt",
    "DeliveredAt",
    "ReceivedAt",
    "ChangedAt",
    "Metadata",
    "SuppressSending",
    "OriginalLink",
    "Details",
]
WORDS = [
    "failed",
    "opened",
    "delivered",
    "bounce",
    "dropped",
    "click",
    "Bounce",
    "Delivery",
    "Subscription",
    "Open",
    "SubscriptionChange",
    "Notification",
    "permanent",
    "Transient",
    "General",
    "5.1.1",
    "2026-03-10T09:00:00Z",
    "1773133212.5",
    "a@x.example",
    "NaN",
    "1e999",
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(WORDS)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=12,
)
events = st.dictionaries(st.sampled_from(NAMES), values, max_size=12)


def wrapped(provider: str, event: Any) -> bytes:
    match provider:
        case "mailgun":
            return json.dumps({"event-data": event}).encode()
        case "sendgrid":
            return json.dumps([event, event]).encode()
        case "ses":
            return json.dumps({"Type": "Notification", "Message": json.dumps(event), "MessageId": "m"}).encode()
    return json.dumps(event).encode()


@pytest.mark.parametrize("provider", PARSERS)
@given(event=events | values, raw=st.binary(max_size=40))
@settings(deadline=None, max_examples=150)
def test_reading_never_raises(provider: str, event: Any, raw: bytes):
    for body in (wrapped(provider, event), raw):
        items = PARSERS[provider](body)
        assert all(isinstance(item, Feedback | Fault) for item in items)
        rows, fault = rows_of(items, provider)
        assert len(rows) == sum(isinstance(item, Feedback) for item in items)
        assert (fault is not None) == any(isinstance(item, Fault) for item in items)
        text = json.dumps(rows, default=str)
        assert "\\u0000" not in text
        assert "\\ud8" not in text.lower()


@given(event=events | values, raw=st.binary(max_size=40))
@settings(deadline=None, max_examples=150)
def test_verifying_refuses_and_raises_nothing_else(event: Any, raw: bytes):
    keys = signing.keys()
    words = [str(part) for part in (event if isinstance(event, dict) else {}).values()]
    shown = "".join(words)[:50].encode("ascii", "ignore").decode().replace("\n", " ").replace("\r", " ")
    headers = CIMultiDict(
        {
            "Authorization": f"Basic {shown}",
            "X-Twilio-Email-Event-Webhook-Signature": shown or "x",
            "X-Twilio-Email-Event-Webhook-Timestamp": shown or "1",
        }
    )
    for body in (json.dumps(event).encode(), json.dumps({"event-data": {}, "signature": event}).encode(), raw):
        with suppress(Refused):
            pytest.fail(f"let in: {mailgun.verify(headers, body, keys.mailgun)}")
        with suppress(Refused):
            pytest.fail(f"let in: {sendgrid.verify(headers, body, keys.sendgrid)}")
        with suppress(Refused):
            pytest.fail(f"let in: {postmark.verify(headers, body, keys.postmark)}")
        with suppress(Refused):
            pytest.fail(f"let in: {ses.open_envelope(body, keys.ses)}")
