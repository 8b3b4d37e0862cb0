"""Single values in their public JSON form: texts, numbers, ids, times, lengths, rates; which may be read, why not."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any, Final, NewType, get_args

from ..events.text import scrub
from . import lengths, moments
from .senders import Rate

Id = NewType("Id", int)
"""A number of ours, outside a string of digits."""

BIGGEST: Final = 2**63 - 1
DEEPEST: Final = 50
"""Levels of an object that is kept as it is; parsers and databases have limits too, but none to rely on."""


class Unfit(ValueError):  # noqa: N818 - it says what was found
    """Why one value is not acceptable; whoever knows its place makes it Unreadable."""

    def __init__(self, reason: str, remedy: str | None = None, field: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.field = field
        """Where whoever checks a whole object knows which of its fields it is."""


# JSON's own types are taken as they are, never made of each other: "5" is no number.


def text(value: object, _: Any = None) -> str:
    if not isinstance(value, str):
        raise Unfit(f"{said(value)} is no text", "write a string")
    return scrub(value)


def whole(value: object, _: Any = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit(f"{said(value)} is no whole number", "write a number without quotes or fraction")
    if abs(value) > BIGGEST:
        raise Unfit(f"{value} is too large", "write a smaller one")
    return value


def truth(value: object, _: Any = None) -> bool:
    if not isinstance(value, bool):
        raise Unfit(f"{said(value)} is neither true nor false", "write true or false")
    return value


def id_(value: object, _: Any = None) -> Id:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,19}", value) or int(value) > BIGGEST:
        raise Unfit(f"{said(value)} is no id", "write it as it was given, a string of digits")
    return Id(int(value))


def moment(value: object, _: Any = None) -> datetime:
    try:
        return moments.read(text(value)).at
    except moments.UnreadableMoment as error:
        raise _unfit(error) from None


def length(value: object, _: Any = None) -> timedelta:
    try:
        return lengths.read(text(value))
    except Unfit:
        raise
    except ValueError as error:
        raise _unfit(error) from None


def rate(value: object, _: Any = None) -> Rate:
    try:
        return Rate.read(text(value))
    except Unfit:
        raise
    except ValueError as error:
        raise _unfit(error) from None


def _unfit(error: ValueError) -> Unfit:
    """What our own readers say: what is wrong, a colon, and what to write."""
    reason, _, remedy = str(error).rpartition(": ")
    return Unfit(reason, remedy) if reason else Unfit(remedy)


def nothing(value: object, _: Any = None) -> None:
    if value is not None:
        raise Unfit(f"{said(value)} is not null", "write null")


def choice(value: object, kind: Any) -> Any:
    allowed = get_args(kind)
    if value not in allowed or isinstance(value, bool) != any(isinstance(one, bool) for one in allowed):
        raise Unfit(f"{said(value)} is not known here", f"write one of {', '.join(map(str, allowed))}")
    return value


def object_(value: object, _: Any = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit(f"{said(value)} is no object", "write {...}")
    return {scrub(name): _clean(item, 1) for name, item in value.items()}


def _clean(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise Unfit(f"nested deeper than {DEEPEST} levels", "make it flatter")
    match value:
        case str():
            return scrub(value)
        case dict():
            return {scrub(name): _clean(item, depth + 1) for name, item in value.items()}
        case list():
            return [_clean(item, depth + 1) for item in value]
    return value


def said(value: object) -> str:
    """Enough of a value to know it by, never all of it."""
    shown = "null" if value is None else repr(value)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def whole_text(value: object, _: Any = None) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise Unfit(f"{said(value)} is no whole number", "write digits")
    return int(value)


def truth_text(value: object, _: Any = None) -> bool:
    if value not in ("true", "false"):
        raise Unfit(f"{said(value)} is neither true nor false", "write true or false")
    return value == "true"
