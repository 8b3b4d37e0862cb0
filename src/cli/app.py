"""The command `postledger`: its commands by name, and how any of them ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper

import click

from .exits import EXPLAINED, Exit
from .options import Given, Group, not_built_command
from .output import complain
from .runner import guarded

# A module is imported when its command is asked for: `campaign list` need not wait for a template engine.
_COMMANDS = {
    "send": "send",
    "up": "serve",
    "serve": "serve",
    "work": "operate",
    "campaign": "campaign",
    "contacts": "contacts",
    "suppress": "suppress",
    "webhooks": "webhooks",
    "audit": "audit",
    "keys": "keys",
    "migrate": "operate",
    "doctor": "doctor",
    "demo": "demo",
}
_NOT_BUILT = ("projections", "erase")

_HELP = """\
Campaigns by mail on PostgreSQL, with a log that proves what became of each recipient.

\b
Send one, in one command, into nowhere first:
  postledger send --to people.csv --subject "Hello {{ name }}" \\
      --from "Shop <news@shop.example>" --html letter.html --via null://
See what became of it, and check the log against the tables:
  postledger campaign list
  postledger audit verify

Without --database a private PostgreSQL is started under .postledger and stopped again. With one, run `postledger
migrate` once. CAMPAIGN is a name or an id; RECIPIENT a key, an address or a delivery id. Each command explains itself:
`postledger send --help`."""

_EPILOG = f"""\
\b
Exit codes:
{EXPLAINED}

\b
Environment (the flags of the same names win, empty is unset):
  POSTLEDGER_DATABASE  postgresql://user:password@host:5432/name
  POSTLEDGER_LISTEN    its direct address, where that is a pooler
  POSTLEDGER_SCHEMA    schema of this installation      (postledger)
  POSTLEDGER_DATA      folder of the private PostgreSQL (.postledger)
  POSTLEDGER_HTTP      where `serve` and `up` listen    (127.0.0.1:8025)
  POSTLEDGER_URL       public https base of unsubscribe links
  POSTLEDGER_WEBHOOK_MAILGUN, _SENDGRID, _SES, _POSTMARK   by what `serve` knows their posts (docs/webhooks.md)
  POSTLEDGER_DEBUG     any value: as --verbose"""


class _Root(Group):
    """Finds commands by name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order a newcomer meets them."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command, imported now; one of a later version refuses itself."""
        if cmd_name in _NOT_BUILT:
            return not_built_command(cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        module = import_module(f".{_COMMANDS[cmd_name]}", __package__)
        command: click.Command = getattr(module, cmd_name)
        return command


root = _Root("postledger", help=_HELP, epilog=_EPILOG, context_settings={"max_content_width": 120})
click.version_option(package_name="postledger", prog_name="postledger")(root)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the `postledger` command; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    given = Given()
    return guarded(lambda: _run(arguments, given), verbose=given.verbose)


def _run(arguments: Sequence[str] | None, given: Given) -> int:
    try:
        code = root.main(arguments, prog_name="postledger", standalone_mode=False, obj=given)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return Exit.USAGE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "postledger"
        complain(f"{_sentence(error.format_message())} ('{where} --help' explains it)")
        return Exit.USAGE
    except click.ClickException as error:
        complain(_sentence(error.format_message()))
        return Exit.USAGE
    except click.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else Exit.OK


def _sentence(message: str) -> str:
    text = message.removesuffix(".")
    return text[:1].lower() + text[1:]
