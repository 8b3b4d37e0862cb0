"""Moments as people write them, and what is said of those that are none."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.ledger.moments import UnreadableMoment, read, short


@pytest.mark.parametrize(
    ("written", "utc"),
    [
        ("2026-12-01T09:00:00Z", "2026-12-01T09:00:00Z"),
        ("2026-12-01t09:00:00z", "2026-12-01T09:00:00Z"),
        ("2026-12-01T09:00:00+01:00", "2026-12-01T08:00:00Z"),
        ("2026-12-01 09:00-05:00", "2026-12-01T14:00:00Z"),
        ("2026-12-01T09:00:00.25-00:00", "2026-12-01T09:00:00.250000Z"),
        ("2026-12-01 09:00 Europe/Berlin", "2026-12-01T08:00:00Z"),
        ("  2026-12-01   09:00:30  Europe/Berlin ", "2026-12-01T08:00:30Z"),
        ("2026-07-01T09:00 Europe/Berlin", "2026-07-01T07:00:00Z"),
        ("2026-12-01 09:00 europe/berlin", "2026-12-01T08:00:00Z"),
        ("2026-12-01 09:00 America/New York", "2026-12-01T14:00:00Z"),
        ("2026-12-01 09:00 Asia/Kolkata", "2026-12-01T03:30:00Z"),
        ("2026-12-01 09:00 Pacific/Chatham", "2026-11-30T19:15:00Z"),
        ("2026-12-01 09:00 UTC", "2026-12-01T09:00:00Z"),
        # Aliases: names that IANA has given up, and that browsers and systems still use.
        ("2026-12-01 09:00 Europe/Kiev", "2026-12-01T07:00:00Z"),
        ("2026-12-01 09:00 Asia/Calcutta", "2026-12-01T03:30:00Z"),
        ("2026-12-01 09:00 US/Eastern", "2026-12-01T14:00:00Z"),
    ],
)
def test_what_is_a_moment(written: str, utc: str) -> None:
    assert (str(read(written)), read(written).note) == (utc, None)


@pytest.mark.parametrize(
    ("zone", "skipped", "taken", "utc"),
    [
        ("Europe/Berlin", "2027-03-28 02:30", "2027-03-28 03:30:00", "2027-03-28T01:30:00Z"),
        ("America/New_York", "2027-03-14 02:30", "2027-03-14 03:30:00", "2027-03-14T07:30:00Z"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-04 02:45:00", "2026-10-03T15:45:00Z"),  # half an hour
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-31 12:00:00", "2011-12-30T22:00:00Z"),  # a whole day
    ],
)
def test_what_the_clock_skips_is_moved_forward_by_as_much(zone: str, skipped: str, taken: str, utc: str) -> None:
    moment = read(f"{skipped} {zone}")
    assert str(moment) == utc
    assert moment.note is not None
    for part in (zone, "is skipped", f"{taken} is taken"):
        assert part in moment.note


@pytest.mark.parametrize(
    ("zone", "twice", "utc"),
    [
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25T00:30:00Z"),
        ("America/New_York", "2026-11-01 01:30", "2026-11-01T05:30:00Z"),
    ],
)
def test_of_what_comes_twice_it_is_the_first(zone: str, twice: str, utc: str) -> None:
    moment = read(f"{twice} {zone}")
    assert str(moment) == utc
    assert moment.note is not None
    assert "comes twice" in moment.note


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("2026-12-01 09:00", ["no time zone", "+01:00", "Europe/Berlin"]),
        ("2026-12-01T09:00:00", ["no time zone"]),
        ("2026-12-01", ["no moment", "2026-12-01T08:00:00Z"]),
        ("tomorrow", ["'tomorrow'", "no moment"]),
        ("1764576000", ["no moment"]),
        ("", ["no moment"]),
        ("2026-02-30 09:00Z", ["day"]),
        ("2026-12-01 25:00Z", ["hour"]),
        ("2026-12-01T23:59:60Z", ["second"]),
        ("2026-12-01 09:00+24:00", ["23:59"]),
        ("2026-12-01T09:00:00+01:00 Europe/Berlin", ["no moment"]),
        ("2026-12-01 09:00 Berlin", ["'Berlin'", "Europe/Berlin"]),
        ("2026-12-01 09:00 Europe/Berln", ["'Europe/Berln'", "Europe/Berlin"]),
        ("2026-12-01 09:00 New York", ["America/New_York"]),
        ("2026-12-01 09:00 CEST", ["'CEST'", "IANA"]),
        ("2026-12-01 09:00 GMT+1", ["'GMT+1'", "+01:00"]),
        # What else lies in a machine's folder of zones: its own, those that count leap seconds, any other file.
        ("2026-12-01 09:00 localtime", ["no time zone is called"]),
        ("2026-12-01 09:00 right/Europe/Berlin", ["no time zone is called", "Europe/Berlin"]),
        ("2026-12-01 09:00 Europe/../../passwd", ["no time zone is called"]),
        ("0001-01-01 00:00+05:00", ["beyond"]),
        ("9999-12-31 23:59 America/Los_Angeles", ["beyond"]),
        ("\u0662\u0660\u0662\u0666-12-01T09:00:00Z", ["no moment"]),
    ],
)
def test_what_is_none_is_told_what_to_write(written: str, says: list[str]) -> None:
    with pytest.raises(UnreadableMoment) as found:
        read(written)
    for part in says:
        assert part in str(found.value)


@given(
    st.datetimes(datetime(1900, 1, 1), datetime(9990, 1, 1)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
@settings(deadline=None, max_examples=200)
def test_every_instant_with_an_offset_is_read_as_itself(local: datetime, zone: timezone) -> None:
    at = local.replace(tzinfo=zone)
    assert read(at.isoformat()).at == at
    assert read(short(at)).at == at
    assert read(short(at)).at.tzinfo is UTC


@given(st.text(max_size=40) | st.from_regex(r"\d{4}-\d\d-\d\d \d\d:\d\d ?[A-Za-z/+\-0-9_]{0,20}", fullmatch=True))
@settings(deadline=None, max_examples=300)
def test_whatever_is_written_is_a_moment_or_refused(text: str) -> None:
    try:
        moment = read(text)
    except UnreadableMoment:
        return
    assert moment.at.tzinfo is UTC
