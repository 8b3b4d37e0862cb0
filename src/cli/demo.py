"""`postledger demo`: the main job on a sample, with a mail server that misbehaves, and every count proven."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from functools import partial
from typing import Any

import click
from attrs import evolve

from ..config import redact
from ..demo.findings import Findings
from ..demo.people import LEAST
from ..demo.run import MAIL_FROM, SUBJECT, Parcel
from ..demo.run import run as play
from ..demo.story import tell
from .connecting import opened
from .exits import Exit
from .options import Command, Given
from .output import document, number, say, table
from .runner import Interrupts, run
from .send import Flags, job_of
from .send import send as send_command

_LINKS = "https://reading-room.example"
"""Stands in for POSTLEDGER_URL, so that the sample mails have their links to unsubscribe."""

_GO_ON = "what is left of the sample is cancelled: another run is another sample"

_INTRODUCTION = """\
A mail server is started beside this process. It takes what it is given, but at some recipients it answers 450 or 550,
and at some it hangs up before or after the final dot. What the campaign must come to is known beforehand.
"""


@click.command(
    cls=Command,
    short_help="See it all work on a sample.",
    example="""
    postledger demo
    postledger demo --recipients 20000
    """,
)
@click.option(
    "--recipients",
    type=click.IntRange(LEAST, 1_000_000),
    default=2000,
    show_default=True,
    help="People in the sample.",
)
@click.pass_obj
def demo(given: Given, recipients: int) -> int:
    """Send a sample campaign over real SMTP into a built-in server that misbehaves, and check every count.

    Each run is a campaign of its own. Its files stay in a folder under `demo` in --data: people, letter, and a line per
    mail that the server took. Exit code 0: every count is the expected one, and the tables are as the log says.
    """

    async def main(interrupts: Interrupts) -> int:
        interrupts.advice = "stopped before the end"
        config = given.config()
        async with opened(config, install=True) as database:
            send = partial(_send, given, interrupts)
            findings = await play(database, config.data / "demo", recipients=recipients, send=send)
        if findings is None:
            return Exit.STOPPED
        if given.json:
            document(_as_json(findings))
        else:
            _show(given, findings)
        return Exit.OK if findings.good else Exit.INCOMPLETE

    return run(given, main)


async def _send(given: Given, interrupts: Interrupts, parcel: Parcel) -> bool:
    """The way that everybody's mails take, from the command line on."""
    arguments = _arguments(given, parcel)
    theirs = evolve(given, flags=dict(given.flags), json=False)
    context = send_command.make_context("send", [*arguments], obj=theirs)
    with ExitStack() as files:
        if given.json:
            files.enter_context(redirect_stdout(sys.stderr))
        say(f"{_INTRODUCTION}\n{_typed(given, 'send', arguments)}")
        await evolve(job_of(theirs, Flags(**context.params), files), go_on=_GO_ON).run(interrupts)
    return not interrupts.asked.is_set()


def _arguments(given: Given, parcel: Parcel) -> list[str]:
    return [
        *("--name", parcel.name),
        *("--to", str(parcel.people)),
        *("--html", str(parcel.letter)),
        *("--subject", SUBJECT),
        *("--from", MAIL_FROM),
        *("--via", parcel.via),
        *([] if given.config().url else ["--url", _LINKS]),
    ]


def _typed(given: Given, command: str, arguments: Sequence[str]) -> str:
    """What a person would type, without anybody's password."""
    places = [part for name, value in given.flags.items() for part in (f"--{name}", redact(value))]
    return f"$ postledger {command} {shlex.join([*arguments, *places])}"


def _show(given: Given, findings: Findings) -> None:
    say("\nDid it come to what it must come to?")
    rows = [
        ("yes" if line.right else "NO", number(line.expected), number(line.actual), line.label, line.why)
        for line in findings.lines
    ]
    table(("", "expected", "actual", "", ""), rows, right=("expected", "actual"))
    _show_history(given, findings)
    say(f"\n{_typed(given, 'audit verify', [findings.campaign])}")
    verified = findings.verification
    say(f"equal: {number(verified.checked)} recipients are as the log says" if verified.equal else "they DIFFER")
    say(f"\nThe files of this run are in {findings.home}")


def _show_history(given: Given, findings: Findings) -> None:
    who = findings.person
    say(f"\n{_typed(given, 'audit history', [findings.campaign, who.key])}")
    say(f"in plain words, for {who.name}, {who.email}:")
    table(("UTC", "event", ""), tell(findings.history))
    say(f"The server got {findings.copies} mails for this one under a single Message-ID: mail readers show one.")


def _as_json(findings: Findings) -> dict[str, Any]:
    lines = [{"what": line.label, "expected": line.expected, "actual": line.actual} for line in findings.lines]
    who = findings.person
    return {
        "campaign": {"id": str(findings.campaign_id), "name": findings.campaign},
        "good": findings.good,
        "counts": lines,
        "history": {"key": who.key, "email": who.email, "copies": findings.copies, "items": findings.history},
        "verify": findings.verification.as_json(),
    }
