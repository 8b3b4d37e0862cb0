"""The bytes under the hashes: written out by hand once, and never two rows with the same ones."""

from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256

from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.events.digest import leaf_bytes, recipient_digest

from .strategies import clean_text, moments

optional_text = st.none() | clean_text
recipients = st.tuples(st.none() | st.binary(max_size=16), clean_text, optional_text, optional_text, optional_text)
rows = st.tuples(
    st.integers(1, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(1, 2**31 - 1),
    clean_text,
    moments,
    clean_text,
)


def test_a_recipient_byte_by_byte():
    content = (
        b"\x01\x00\x00\x00\x04\x00\xff\x80\x01"
        b"\x01\x00\x00\x00\x05k\xc3\xa4se"
        b"\x01\x00\x00\x00\x07a@b.org"
        b"\x00"
        b"\x01\x00\x00\x00\x02{}"
    )
    digest = recipient_digest(b"\x00\xff\x80\x01", "käse", "a@b.org", None, "{}")
    assert digest == sha256(content).hexdigest()
    assert digest == "bae23cbd0a093ee5d041abe08e4b038baf1253ec550e072e13057c6af3bbed8a"


def test_an_erased_recipient_byte_by_byte():
    content = b"\x00" + b"\x01\x00\x00\x00\x00" + b"\x00\x00\x00"
    assert recipient_digest(None, "", None, None, None) == sha256(content).hexdigest()


def test_a_leaf_byte_by_byte():
    at = datetime(2026, 11, 30, 12, 0, 0, 1, tzinfo=UTC)
    assert leaf_bytes(10, 7, 42, 3, "Skipped", at, '{"reason": "ä"}') == (
        b"\x01"
        b"\x01\x00\x00\x00\x0210"
        b"\x01\x00\x00\x00\x017"
        b"\x01\x00\x00\x00\x0242"
        b"\x01\x00\x00\x00\x013"
        b"\x01\x00\x00\x00\x07Skipped"
        b"\x01\x00\x00\x00\x101796040000000001"
        b'\x01\x00\x00\x00\x10{"reason": "\xc3\xa4"}'
    )


def test_a_leaf_without_version_and_before_the_epoch():
    at = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert leaf_bytes(1, 0, 0, None, "X", at, "{}") == (
        b"\x01"
        b"\x01\x00\x00\x00\x011"
        b"\x01\x00\x00\x00\x010"
        b"\x01\x00\x00\x00\x010"
        b"\x00"
        b"\x01\x00\x00\x00\x01X"
        b"\x01\x00\x00\x00\x02-1"
        b"\x01\x00\x00\x00\x02{}"
    )


def test_the_zone_of_a_moment_does_not_matter():
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    elsewhere = at.astimezone(timezone(timedelta(hours=12, minutes=45)))
    assert leaf_bytes(1, 1, 1, 1, "X", at, "{}") == leaf_bytes(1, 1, 1, 1, "X", elsewhere, "{}")


def test_microseconds_are_exact_far_from_the_epoch():
    last = datetime.max.replace(tzinfo=UTC)
    assert b"253402300799999999" in leaf_bytes(1, 1, 1, 1, "X", last, "{}")


@settings(deadline=None, max_examples=200)
@given(recipients, recipients)
def test_two_recipients_have_two_digests(one, other):
    assert (recipient_digest(*one) == recipient_digest(*other)) == (one == other)


@settings(deadline=None, max_examples=200)
@given(rows, rows)
def test_two_rows_have_two_leaves(one, other):
    assert (leaf_bytes(*one) == leaf_bytes(*other)) == (one == other)


def test_a_border_between_fields_cannot_be_moved():
    assert recipient_digest(b"", "ab", "c", None, "") != recipient_digest(b"", "a", "bc", None, "")
    assert recipient_digest(b"", "a", None, "", "") != recipient_digest(b"", "a", "", None, "")
