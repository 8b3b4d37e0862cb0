"""What flags about time, rates and shares of errors take."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Literal

import click

from ..ledger import moments
from ..ledger.moments import Moment
from ..ledger.senders import Rate
from ..ledger.writing import OFF
from .options import duration


def length(least: timedelta = timedelta(seconds=1)) -> Callable[[str], timedelta]:
    """A duration that may be `off`, which is OFF."""
    convert = duration(least)
    return lambda value: OFF if value.strip() == "off" else convert(value)


def moment(value: str) -> Moment:
    """An option's type: an instant with its offset, or a time of day in a named zone."""
    try:
        return moments.read(value)
    except moments.UnreadableMoment as error:
        raise click.BadParameter(str(error)) from None


def moment_notes(given: Moment | None) -> list[str]:
    """What a person should know of how a moment was read."""
    return [given.note] if given is not None and given.note is not None else []


def rate(value: str) -> Rate | Literal["off"]:
    """An option's type: 100/s, 5000/m, 20000/h, 500/d, off."""
    try:
        return "off" if value.strip() == "off" else Rate.read(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def percent(value: str) -> int:
    """An option's type: 1% to 100%; off is 100, which nothing exceeds."""
    if value.strip() == "off":
        return 100
    found = re.fullmatch(r"([0-9]{1,3}) ?%", value.strip())
    if found is None or not 1 <= int(found[1]) <= 100:
        raise click.BadParameter(f"{value!r} is no share: write 20%, whole percents from 1% to 100%, or off")
    return int(found[1])
