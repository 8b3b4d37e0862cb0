"""Values in their public form: what is read, what is refused, and where it stands."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.ledger.public import Id, Unreadable, named, read, read_text, write
from postledger.ledger.public_values import BIGGEST, DEEPEST
from postledger.ledger.senders import Rate


@frozen(kw_only=True)
class Person:
    email: str
    age: int | None = None


@frozen(kw_only=True)
class Whole:
    id: Id
    mail_from: str = named("from", default="x")
    kind: Literal["bulk", "standing"] = "bulk"
    sure: bool = False
    at: datetime | None = None
    length: timedelta | None = None
    rate: Rate | None = None
    people: tuple[Person, ...] = ()
    data: dict[str, Any] | None = None


def test_what_is_right_is_read_and_written_back():
    given = {
        "id": "42",
        "from": "Ann",
        "kind": "standing",
        "sure": True,
        "at": "2026-12-01T09:00:00+01:00",
        "length": "90m",
        "rate": None,
        "people": [{"email": "a@x.example", "age": 5}, {"email": "b@x.example", "age": None}],
        "data": {"a": [1, {"b": None}], "c": 1.5},
    }
    found = read(given, Whole)
    assert found.at == datetime(2026, 12, 1, 8, tzinfo=UTC)
    assert (found.id, found.length) == (42, timedelta(minutes=90))
    assert write(found) == {**given, "at": "2026-12-01T08:00:00.000000Z"}


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "id"),
    ({"id": 42}, "id"),
    ({"id": "-1"}, "id"),
    ({"id": "4 2"}, "id"),
    ({"id": "٤٢"}, "id"),
    ({"id": str(BIGGEST + 1)}, "id"),
    ({"id": None}, "id"),
    ({"id": "1", "from": 5}, "from"),
    ({"id": "1", "mail_from": "x"}, "mail_from"),
    ({"id": "1", "kind": "other"}, "kind"),
    ({"id": "1", "kind": 1}, "kind"),
    ({"id": "1", "kind": ["bulk"]}, "kind"),
    ({"id": "1", "sure": 1}, "sure"),
    ({"id": "1", "sure": "true"}, "sure"),
    ({"id": "1", "at": 5}, "at"),
    ({"id": "1", "at": "2026-12-01T09:00:00"}, "at"),
    ({"id": "1", "at": "2026-13-01T09:00:00Z"}, "at"),
    ({"id": "1", "length": 90}, "length"),
    ({"id": "1", "length": "a while"}, "length"),
    ({"id": "1", "rate": "fast"}, "rate"),
    ({"id": "1", "people": {"email": "a"}}, "people"),
    ({"id": "1", "people": "ab"}, "people"),
    ({"id": "1", "people": ["ab"]}, "people[0]"),
    ({"id": "1", "people": [{"email": "a"}, {}]}, "people[1].email"),
    ({"id": "1", "people": [{"email": "a", "age": "5"}]}, "people[0].age"),
    ({"id": "1", "people": [{"email": "a", "age": 2**70}]}, "people[0].age"),
    ({"id": "1", "people": [{"email": "a", "agee": 5}]}, "people[0].agee"),
    ({"id": "1", "data": []}, "data"),
    ({"id": "1", "data": nested(DEEPEST + 1)}, "data"),
    ({"id": "1", "data": nested(900)}, "data"),
]


@pytest.mark.parametrize(("value", "place"), WRONG, ids=lambda value: str(value)[:60])
def test_what_is_wrong_is_refused_with_its_place(value: dict[str, Any], place: str):
    with pytest.raises(Unreadable) as refused:
        read(value, Whole)
    assert refused.value.field == place
    assert refused.value.reason
    assert refused.value.remedy


@pytest.mark.parametrize("value", [None, 5, "x", [], [["id", "1"]]], ids=repr)
def test_what_is_no_object_is_refused(value: Any):
    with pytest.raises(Unreadable):
        read(value, Whole)


def test_what_the_database_cannot_store_becomes_a_mark():
    found = read({"id": "1", "from": "a\x00b\ud800", "data": {"k\x00": ["\x00"]}}, Whole)
    assert found.mail_from == "a\ufffdb\ufffd"
    assert found.data == {"k\ufffd": ["\ufffd"]}


@frozen(kw_only=True)
class Query:
    limit: int = 10
    sure: bool = False
    after: str | None = None
    campaign: Id | None = None


def test_a_query_is_read_of_texts():
    assert read_text({"limit": "5", "sure": "true", "campaign": "7"}, Query) == Query(
        limit=5, sure=True, campaign=Id(7)
    )
    for wrong in (
        {"limit": "5.0"},
        {"limit": ""},
        {"limit": "１"},
        {"sure": "1"},
        {"sure": ""},
        {"campaign": "x"},
        {"x": ""},
    ):
        with pytest.raises(Unreadable) as refused:
            read_text(wrong, Query)
        assert refused.value.field == next(iter(wrong))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["id", "from", "kind", "sure", "at", "length", "rate", "people", "data", "other"])


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(FIELDS, JSON, max_size=6))
def test_whatever_comes_is_read_or_refused_in_words(value: dict[str, Any]):
    found: Whole | None = None
    with suppress(Unreadable):  # any other error is a fault of ours
        found = read(value, Whole)
    assert found is None or read(write(found), Whole) == found


@settings(deadline=None, max_examples=100)
@given(
    st.datetimes(timezones=st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m)))),
    st.integers(1, 366 * 86400),
)
def test_moments_and_lengths_come_back_as_they_were(at: datetime, seconds: int):
    if not 2 <= at.year <= 9998:
        return
    whole = Whole(id=Id(1), at=at, length=timedelta(seconds=seconds))
    assert read(write(whole), Whole) == whole
