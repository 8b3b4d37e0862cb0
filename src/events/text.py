"""How text and moments are written into event bodies."""

import re
from datetime import UTC, datetime

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def scrub(text: str) -> str:
    """PostgreSQL stores neither NUL nor a lone surrogate: each becomes U+FFFD, and its row survives."""
    return _UNSTORABLE.sub("\ufffd", text)


def write_moment(at: datetime) -> str:
    """RFC 3339, UTC, always six decimals: `2026-11-30T12:00:00.000000Z`. A naive datetime is refused."""
    if at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone")
    return at.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def read_moment(text: object) -> datetime:
    """The inverse. Only the one form that is written is read, so that reading and writing changes no byte."""
    if not isinstance(text, str):
        raise TypeError("not a time")
    at = datetime.fromisoformat(text)
    if at.tzinfo is None or write_moment(at) != text:
        raise ValueError("not a time in UTC with six decimals and Z")
    return at
