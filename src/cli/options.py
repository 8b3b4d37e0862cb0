"""What every command takes: the shared flags, durations, and the refusal of what is not built yet."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import click
from attrs import define, field

from ..config import NAMES, Config, load
from ..errors import UsageError
from ..ledger import lengths

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@define
class Given:
    """What stood on the command line beside the command's own options."""

    flags: dict[str, str] = field(factory=dict)
    json: bool = False
    verbose: bool = field(factory=lambda: bool(os.environ.get("POSTLEDGER_DEBUG")))

    def config(self) -> Config:
        """Flags win over POSTLEDGER_*. Raises ConfigurationError."""
        return load(os.environ, **self.flags)


_HELP = {
    "database": ("URL", "PostgreSQL to use: postgresql://user:password@host/name. [POSTLEDGER_DATABASE]"),
    "listen": ("URL", "Its direct address, where --database is a pooler. [POSTLEDGER_LISTEN]"),
    "schema": ("NAME", "Schema of this installation: postledger. [POSTLEDGER_SCHEMA]"),
    "data": ("FOLDER", "The private PostgreSQL, where no --database is named: .postledger. [POSTLEDGER_DATA]"),
    "http": ("HOST:PORT", "Where `serve` and `up` listen: 127.0.0.1:8025. [POSTLEDGER_HTTP]"),
    "url": ("URL", "Public https base of the links in mails, for unsubscribing. [POSTLEDGER_URL]"),
}


def _keep_flag(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Given).flags[param.name or ""] = value


def _keep_switch(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        setattr(ctx.ensure_object(Given), param.name or "", True)


def _shared() -> list[click.Option]:
    places = [
        click.Option(
            [f"--{name}"], metavar=_HELP[name][0], help=_HELP[name][1], expose_value=False, callback=_keep_flag
        )
        for name in NAMES
    ]
    switches = [
        click.Option(
            ["--json"], is_flag=True, help="One JSON document on stdout.", expose_value=False, callback=_keep_switch
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            help="More log, tracebacks too. [POSTLEDGER_DEBUG]",
            expose_value=False,
            callback=_keep_switch,
        ),
    ]
    return places + switches


class Command(click.Command):
    """A command that takes the shared flags and shows an example."""

    def __init__(self, *args: Any, example: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.example = inspect.cleandoc(example)
        self.shared = _shared()
        self.params.extend(self.shared)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """What is wrong with the arguments names this command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options first, those of every command after them."""
        names = {option.name for option in self.shared}
        records = [(p.name, p.get_help_record(ctx)) for p in self.get_params(ctx)]
        own = [record for name, record in records if record and name not in names]
        shared = [record for name, record in records if record and name in names]
        for title, rows in (("Options", own), ("Options of every command", shared)):
            with formatter.section(title):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A real example."""
        if self.example:
            with formatter.section("Example"):
                for line in self.example.splitlines():
                    formatter.write(f"  {line}\n")


class Group(click.Group):
    """A group whose commands take the shared flags."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_hidden(option) for option in _shared())


def _hidden(option: click.Option) -> click.Option:
    option.hidden = True
    return option


def duration(least: timedelta = timedelta(0)) -> Callable[[str], timedelta]:
    """An option's type: 90s, 15m, 24h, 2d, up to a year."""

    def convert(value: str) -> timedelta:
        try:
            return lengths.read(value, least)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return convert


def not_built(name: str, instead: str) -> Decorator:
    """An option of a later version: known by name, and refused."""

    def refuse(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value is not None:
            raise UsageError(f"{name} is not built yet in this version: {instead}")

    return click.option(name, metavar="...", hidden=True, expose_value=False, callback=refuse, is_eager=True)


def not_built_command(name: str) -> click.Command:
    """A command of a later version: known by name, and refused whatever stands behind it."""

    def refuse(rest: tuple[str, ...]) -> None:
        raise UsageError(f"'{name}' is not built yet in this version: 'postledger --help' lists what there is")

    return click.Command(
        name.rpartition(" ")[2],
        callback=refuse,
        params=[click.Argument(["rest"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        hidden=True,
    )
