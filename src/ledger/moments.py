"""Moments as people write them: with an offset, or on the clock of a named time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata
from attrs import frozen

from ..events.text import write_moment

EXAMPLES = "2026-12-01T09:00:00+01:00, 2026-12-01T08:00:00Z or '2026-12-01 09:00 Europe/Berlin'"

_WRITTEN = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)? ?(?:(Z)|([+-])(\d{2}):?(\d{2})|([^\W\d].*))?",
    re.IGNORECASE | re.ASCII,
)


class UnreadableMoment(ValueError):  # noqa: N818 - it names what was found
    """A text that names no moment; in words for the one who wrote it."""


@frozen
class Moment:
    """`note` says what had to be decided where the clocks of the zone jump."""

    at: datetime
    note: str | None = None

    def __str__(self) -> str:
        return short(self.at)


def short(at: datetime) -> str:
    """RFC 3339 in UTC, without a fraction that is zero: 2026-12-01T08:00:00Z."""
    return write_moment(at).replace(".000000Z", "Z")


def read(text: str) -> Moment:
    """RFC 3339 with an offset or Z; or a date, a time of day and an IANA zone. Raises UnreadableMoment.

    What a zone's clock skips is moved forward by what it skips; of what comes twice it is the first.
    """
    found = _WRITTEN.fullmatch(" ".join(text.split()))
    if found is None:
        raise UnreadableMoment(f"{text!r} is no moment: write {EXAMPLES}")
    day, clock, seconds, fraction, utc, sign, hours, minutes, zone = found.groups()
    local = _local(text, f"{day}T{clock}:{seconds or '00'}.{(fraction or '0')[:6]:0<6}")
    if zone is not None:
        return _in_zone(local, zone)
    if utc is None and sign is None:
        raise UnreadableMoment(f"{text!r} names no time zone, so it could be any of a day's hours: write {EXAMPLES}")
    return Moment(_utc(text, local, UTC if utc else _offset(text, sign, int(hours), int(minutes))))


def _local(text: str, iso: str) -> datetime:
    try:
        return datetime.fromisoformat(iso)
    except ValueError as error:
        raise UnreadableMoment(f"{text!r} is no moment: {error}") from None


def _offset(text: str, sign: str, hours: int, minutes: int) -> timezone:
    if hours > 23 or minutes > 59:
        raise UnreadableMoment(f"{text!r} is no moment: an offset is at most 23:59")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if sign == "+" else -offset)


def _utc(text: str, local: datetime, zone: timezone | ZoneInfo) -> datetime:
    try:
        return local.replace(tzinfo=zone).astimezone(UTC)
    except OverflowError:
        raise UnreadableMoment(f"{text!r} is beyond the years 1 to 9999") from None


def _in_zone(local: datetime, written: str) -> Moment:
    name = _zone_name(written)
    zone = ZoneInfo(name)
    at = _utc(f"{local} {name}", local, zone)
    before, after = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    assert before is not None
    assert after is not None
    if before > after:
        return Moment(at, f"{local:%H:%M:%S} comes twice in {name} on {local:%Y-%m-%d}: the first one is taken")
    if before < after:
        shown = at.astimezone(zone).replace(tzinfo=None)
        return Moment(at, f"{local:%H:%M:%S} is skipped in {name} on {local:%Y-%m-%d}: {shown} is taken")
    return Moment(at)


@cache
def _zones() -> dict[str, str]:
    """IANA's names and aliases by their lower case; what else a machine has in its folder of zones is none."""
    names = files(tzdata).joinpath("zones").read_text(encoding="ascii").split()
    return {name.casefold(): name for name in names}


def _zone_name(written: str) -> str:
    key = written.strip().replace(" ", "_").casefold()
    known = _zones().get(key)
    if known is not None:
        return known
    if re.fullmatch(r"(utc|gmt)[+-]\d.*", key):
        raise UnreadableMoment(f"no time zone is called {written.strip()!r}: write the offset itself, as +01:00")
    likely = [folded for folded in _zones() if folded.rpartition("/")[2] == key.rpartition("/")[2]]
    if len(key) > 5:  # an abbreviation is like many, and means none of them
        likely += [folded for folded in get_close_matches(key, _zones(), 3, 0.7) if folded not in likely]
    meant = ", ".join(_zones()[folded] for folded in likely[:3])
    remedy = f"did you mean {meant}?" if meant else "write its IANA name, as in Europe/Berlin"
    raise UnreadableMoment(f"no time zone is called {written.strip()!r}: {remedy}")
