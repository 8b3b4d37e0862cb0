"""Bodies: what is written is read back the same, and nothing else is read."""

from datetime import UTC, datetime, timedelta, timezone
from typing import ClassVar

import orjson
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.errors import PostledgerError
from postledger.events.codec import EXACT, Codec, UndecodableEvent, body_of, decode, encode
from postledger.events.types import (
    EVENTS,
    CampaignCancelled,
    CampaignKind,
    Cancelled,
    Changed,
    Claimed,
    ContactUnsubscribed,
    Deferred,
    Drafted,
    Event,
    Migrated,
    Paused,
    Queued,
    RecipientsAdded,
    Sent,
    Skipped,
    StreamKind,
    Unsubscribed,
)

from .strategies import events

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize("cls", EVENTS, ids=lambda cls: f"{cls.stream}.{cls.type}")
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_what_is_written_is_read_back_the_same(cls: type[Event], data: st.DataObject):
    event = data.draw(events(cls))
    body = encode(event)
    again = decode(cls.stream, cls.type, body)
    assert again == event
    assert type(again) is cls
    assert encode(again) == body
    assert decode(cls.stream, cls.type, orjson.loads(body)) == event


@settings(deadline=None, max_examples=200)
@given(text=st.text(st.characters() | st.sampled_from("\x00\ud800\udbff\udc00\udfff"), max_size=30))
def test_any_text_can_be_stored(text: str):
    event = Skipped(reason=text)
    read = decode(StreamKind.DELIVERY, "Skipped", encode(event))
    assert len(read.reason) == len(text)
    for was, is_ in zip(text, read.reason, strict=True):
        assert is_ == ("\ufffd" if was == "\x00" or "\ud800" <= was <= "\udfff" else was)


def test_keys_and_lists_are_scrubbed_too():
    counts = body_of(RecipientsAdded(source="csv", counts={"a\x00": 1}))["counts"]
    assert counts == {"a\ufffd": 1}
    assert body_of(Changed(fields=("\ud800",)))["fields"] == ["\ufffd"]


def test_the_same_name_in_two_streams_is_two_events():
    assert type(decode(StreamKind.DELIVERY, "Cancelled", b"{}")) is Cancelled
    assert type(decode(StreamKind.CAMPAIGN, "Cancelled", b"{}")) is CampaignCancelled
    assert type(decode(StreamKind.DELIVERY, "Unsubscribed", b"{}")) is Unsubscribed
    left = decode(StreamKind.CONTACT, "Unsubscribed", {"list": "1", "source": "link"})
    assert left == ContactUnsubscribed(list="1", source="link")


def test_a_keyword_of_python_has_its_plain_name_in_json():
    event = Deferred(attempt=1, class_="retry", due_at=NOON)
    assert body_of(event) == {"attempt": 1, "class": "retry", "due_at": "2026-11-30T12:00:00.000000Z"}


def test_none_is_left_out_and_null_is_read():
    assert encode(Paused(reason="operator")) == b'{"reason":"operator"}'
    null = b'{"reason":"operator","resume_at":null}'
    assert decode(StreamKind.CAMPAIGN, "Paused", null) == Paused(reason="operator")


def test_times_are_written_in_utc():
    east = datetime(2026, 11, 30, 14, tzinfo=timezone(timedelta(hours=2)))
    assert body_of(Queued("csv", "d", east))["due_at"] == "2026-11-30T12:00:00.000000Z"


def test_large_ids_stay_exact():
    worker = str(2**63 - 1)
    assert body_of(Claimed("c", worker, "3", 1))["worker"] == worker


QUEUED = {"source": "csv", "digest": "d", "due_at": "2026-11-30T12:00:00.000000Z"}
SENT = {"attempt": 1, "provider": "smtp"}
UNREADABLE = [
    ("Sent", b"", "body"),
    ("Sent", b"{", "body"),
    ("Sent", b"[]", "not an object"),
    ("Sent", b'"Sent"', "not an object"),
    ("Sent", b'{"attempt":1e400,"provider":"smtp"}', "infinity"),
    ("Sent", {"provider": "smtp"}, "required field missing @ body.attempt"),
    ("Sent", {**SENT, "email": "a@b"}, "extra fields found (email)"),
    ("Sent", {**SENT, "attempt": 1.0}, "body.attempt"),
    ("Sent", {**SENT, "attempt": "1"}, "body.attempt"),
    ("Sent", {**SENT, "attempt": True}, "body.attempt"),
    ("Sent", {**SENT, "attempt": None}, "body.attempt"),
    ("Sent", {**SENT, "attempt": 0}, "'attempt' must be >= 1"),
    ("Sent", {**SENT, "attempt": EXACT + 1}, "body.attempt"),
    ("Sent", {**SENT, "provider": 1}, "body.provider"),
    ("Sent", {**SENT, "provider": None}, "body.provider"),
    ("Sent", {**SENT, "message_id": 1}, "body.message_id"),
    ("Sent", {**SENT, "v": 2}, "shape 2 is not one of 1 to 1"),
    ("Sent", {**SENT, "v": 0}, "shape 0"),
    ("Sent", {**SENT, "v": True}, "shape True"),
    ("Sent", {**SENT, "v": "1"}, "shape '1'"),
    ("Deferred", {"attempt": 1, "class_": "retry", "due_at": QUEUED["due_at"]}, "body.class"),
    ("Queued", {**QUEUED, "due_at": "2026-11-30T12:00:00Z"}, "body.due_at"),
    ("Queued", {**QUEUED, "due_at": "2026-11-30T12:00:00.000000+00:00"}, "body.due_at"),
    ("Queued", {**QUEUED, "due_at": "2026-11-30 12:00:00.000000Z"}, "body.due_at"),
    ("Queued", {**QUEUED, "due_at": "2026-11-30T12:00:00.000000"}, "body.due_at"),
    ("Queued", {**QUEUED, "due_at": "infinity"}, "body.due_at"),
    ("Queued", {**QUEUED, "due_at": 1796040000}, "body.due_at"),
    ("Resent", {}, "a delivery has no such event"),
    ("Started", {}, "a delivery has no such event"),
]


@pytest.mark.parametrize(("type_", "body", "reason"), UNREADABLE)
def test_what_is_not_exactly_right_is_refused(type_: str, body: bytes | dict, reason: str):
    with pytest.raises(UndecodableEvent) as caught:
        decode(StreamKind.DELIVERY, type_, body)
    assert caught.value.type == type_
    assert reason in caught.value.reason
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, PostledgerError)


CAMPAIGN_UNREADABLE = [
    ("RecipientsAdded", {"source": "csv", "counts": {"rows": 1.5}}, "body.counts['rows']"),
    ("RecipientsAdded", {"source": "csv", "counts": {"rows": "1"}}, "body.counts['rows']"),
    ("RecipientsAdded", {"source": "csv", "counts": [1]}, "body.counts"),
    ("Changed", {"fields": "name"}, "body.fields"),
    ("Changed", {"fields": [1]}, "body.fields"),
    ("Drafted", {"name": "n", "kind": "weekly"}, "body.kind"),
    ("Drafted", {"name": "n", "kind": "bulk", "unknown": "drop"}, "body.unknown"),
]


@pytest.mark.parametrize(("type_", "body", "reason"), CAMPAIGN_UNREADABLE)
def test_the_parts_of_a_body_are_as_strict(type_: str, body: dict, reason: str):
    with pytest.raises(UndecodableEvent) as caught:
        decode(StreamKind.CAMPAIGN, type_, body)
    assert reason in caught.value.reason


def test_a_closed_vocabulary_is_read_as_such():
    drafted = decode(StreamKind.CAMPAIGN, "Drafted", {"name": "n", "kind": "bulk"})
    assert drafted == Drafted(name="n", kind=CampaignKind.BULK)
    assert type(drafted.kind) is CampaignKind


@pytest.mark.parametrize(
    "event",
    [
        Migrated(version=1.5),
        Migrated(version=True),
        Migrated(version=EXACT + 1),
        Migrated(version=b"1"),
        Queued("csv", "d", datetime(2026, 11, 30, 12)),
        RecipientsAdded("csv", {"share": 0.5}),
    ],
)
def test_what_no_body_may_hold_is_not_written(event: Event):
    with pytest.raises((TypeError, ValueError)):
        encode(event)


def test_a_body_that_is_read_is_left_as_it_was():
    body = {**SENT, "v": 1}
    assert decode(StreamKind.DELIVERY, "Sent", body) == Sent(1, "smtp")
    assert body == {**SENT, "v": 1}


# No body has changed its shape yet; this made-up event has, twice.


@frozen
class Greeted(Event):
    stream: ClassVar[StreamKind] = StreamKind.SYSTEM
    type: ClassVar[str] = "Greeted"
    shape: ClassVar[int] = 3
    whom: str
    times: int


UPCASTERS = {
    (StreamKind.SYSTEM, "Greeted", 1): lambda body: {"whom": body["who"]},
    (StreamKind.SYSTEM, "Greeted", 2): lambda body: body | {"times": 1},
}


@pytest.mark.parametrize(
    "body",
    [{"who": "Ada"}, {"who": "Ada", "v": 1}, {"whom": "Ada", "v": 2}, {"whom": "Ada", "times": 1, "v": 3}],
)
def test_older_shapes_become_the_present_one(body: dict):
    codec = Codec([Greeted], UPCASTERS)
    event = codec.decode(StreamKind.SYSTEM, "Greeted", body)
    assert event == Greeted("Ada", 1)
    assert codec.body(event) == {"whom": "Ada", "times": 1, "v": 3}


def test_a_shape_newer_than_this_version_is_refused():
    with pytest.raises(UndecodableEvent, match="shape 4 is not one of 1 to 3"):
        Codec([Greeted], UPCASTERS).decode(StreamKind.SYSTEM, "Greeted", {"v": 4})


def test_an_older_body_that_its_step_cannot_read_is_refused():
    with pytest.raises(UndecodableEvent):
        Codec([Greeted], UPCASTERS).decode(StreamKind.SYSTEM, "Greeted", {"whom": "Ada"})


def test_a_shape_without_its_step_is_noticed_at_once():
    with pytest.raises(ValueError, match="no upcaster from shape 2"):
        Codec([Greeted], {key: step for key, step in UPCASTERS.items() if key[2] == 1})
