"""Text and moments at the border to the log."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.events.text import read_moment, scrub, write_moment

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=zones)


@settings(deadline=None, max_examples=200)
@given(moments)
def test_a_moment_is_read_as_it_was_written(at):
    text = write_moment(at)
    assert len(text) == len("2026-11-30T12:00:00.000000Z")
    assert read_moment(text) == at
    assert write_moment(read_moment(text)) == text


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(ValueError, match="has no time zone"):
        write_moment(datetime(2026, 11, 30, 12))


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30",
        "2026-11-30T12:00:00Z",
        "2026-11-30T12:00:00.000Z",
        "2026-11-30T12:00:00,000000Z",
        "2026-11-30T12:00:00.000000z",
        "2026-11-30T12:00:00.000000",
        "2026-11-30T12:00:00.0000001Z",
        "2026-W49-1T12:00:00.000000Z",
        " 2026-11-30T12:00:00.000000Z",
        "2026-02-30T12:00:00.000000Z",
        "2026-11-30T24:00:00.000000Z",
        "٢026-11-30T12:00:00.000000Z",
        "",
        None,
        0,
        datetime(2026, 11, 30, tzinfo=UTC),
    ],
)
def test_any_other_form_is_refused(text):
    with pytest.raises((ValueError, TypeError)):
        read_moment(text)


def test_only_what_cannot_be_stored_is_replaced():
    assert scrub("a\x00b\ud800c\udfffd") == "a\ufffdb\ufffdc\ufffdd"
    assert scrub("\x01\x7f\u200b\ufffe\U0001f600\r\n") == "\x01\x7f\u200b\ufffe\U0001f600\r\n"
