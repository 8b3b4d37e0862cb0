"""`--track`: what is noted of a campaign's readers, which is nothing unless somebody asks for it."""

from __future__ import annotations

import click

from ..config import Config
from ..errors import ConfigurationError

KINDS = ("opens", "clicks")


def tracks(value: str) -> tuple[str, ...]:
    """An option's type: opens, clicks, both with a comma between them, or off."""
    if value.strip() == "off":
        return ()
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in KINDS]:
        raise click.BadParameter(f"{unknown[0]!r} is none of opens and clicks: write opens,clicks or off")
    return tuple(kind for kind in KINDS if kind in names)


def check_tracks(track: tuple[str, ...] | None, config: Config) -> None:
    """Raises ConfigurationError where the links in mails would lead nowhere."""
    if track and config.url is None:
        raise ConfigurationError(
            "--track needs a public address that the links in mails lead to: set POSTLEDGER_URL or --url to that of "
            "'postledger serve'"
        )
