"""Lengths of time as people write them: 90s, 15m, 24h, 2d."""

from __future__ import annotations

import re
from datetime import timedelta

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
LONGEST = timedelta(days=366)


def read(text: str, least: timedelta = timedelta(0)) -> timedelta:
    """Up to a year, with its unit (24 would mostly mean hours). Raises ValueError, in words for who wrote it."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(ms|s|m|h|d|)", text.strip())
    if found is None or (not found[2] and float(found[1])):
        raise ValueError(f"{text!r} is no duration: write 90s, 15m, 24h or 2d")
    length = timedelta(seconds=float(found[1]) * _UNITS.get(found[2], 0))
    if not least <= length <= LONGEST:
        raise ValueError(f"{text!r} is out of bounds: write one between {least.total_seconds():g}s and 366d")
    return length


def write(value: timedelta) -> str:
    """In the largest unit that gives a whole number: 90s, 15m, 24h."""
    seconds = value.total_seconds()
    unit, length = next((size for size in (("h", 3600), ("m", 60)) if seconds % size[1] == 0), ("s", 1))
    return f"{seconds / length:.6f}".rstrip("0").rstrip(".") + unit
