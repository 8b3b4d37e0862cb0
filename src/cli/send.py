"""`postledger send`: people and a letter, written down and sent in one command."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Literal

import click
from attrs import frozen

from ..ledger.audience.header import Columns
from ..ledger.moments import Moment
from ..ledger.senders import Rate
from ..ledger.writing import Order
from ..workers.worker import WorkerOptions
from .job import Job
from .letters import campaign_name, check_columns, read_letter
from .options import Command, Given, duration
from .output import note
from .people import FromList, people_of
from .runner import run
from .timing import length, moment, moment_notes, percent, rate
from .tracking import check_tracks, tracks
from .via import provider_of


@frozen
class Flags:
    """The command line of `send`."""

    to: str | None
    query: str | None
    list: str | None
    subject: str
    mail_from: str
    html: str
    text: str | None
    via: str
    name: str | None
    no_wait: bool
    dry_run: bool
    concurrency: int
    attempts: int | None
    give_up: timedelta | None
    priority: int | None
    unknown: str | None
    grace: timedelta
    quiet: bool
    at: Moment | None
    missed: timedelta | None
    expires: timedelta | None
    rate: Rate | Literal["off"] | None
    max_errors: int | None
    track: tuple[str, ...] | None


@click.command(
    cls=Command,
    short_help="Send a letter to people.",
    example="""
    postledger send --to people.csv --subject "Hello {{ name }}" --from "Shop <news@shop.example>" \\
        --html letter.html --via "smtp://user:password@relay.example:587?starttls=required"
    postledger send --query "SELECT email, name, town FROM users WHERE wants_news" ...
    postledger send --list digest ...          to a list of `postledger contacts import`
    postledger send ... --via null://          sends into nowhere: how fast, who would get it
    postledger send ... --via file:///tmp/out  writes each mail as a file
    """,
)
@click.option("--to", metavar="FILE", help="People as CSV, header with `email`; - is standard input.")
@click.option(
    "--query",
    metavar="SQL",
    help="People from a SELECT on your own tables in the same database, run with the login's own rights: columns "
    "`email`, perhaps `key` and `name`; all others are the letter's variables.",
)
@click.option(
    "--list", metavar="NAME", help="The people of a list; whoever unsubscribes from it meanwhile gets nothing."
)
@click.option("--subject", required=True, help="Subject; a template like the letter: {{ name }}, {{ any_column }}.")
@click.option("--from", "mail_from", metavar="ADDRESS", required=True, help='Sender: "Name <address>".')
@click.option("--html", metavar="FILE", required=True, help="The letter.")
@click.option("--text", metavar="FILE", help="Its text version; made from the HTML where none is given.")
@click.option(
    "--via",
    metavar="URL",
    required=True,
    help="Provider: smtp://, smtps://, file:///folder, null://. A password may be written env:NAME.",
)
@click.option("--name", help="Campaign. The same name again adds new people and goes on with what is unfinished.")
@click.option("--no-wait", is_flag=True, help="Write it down, start it, and leave the sending to `postledger work`.")
@click.option(
    "--at",
    type=moment,
    metavar="TIME",
    help="Write it down and exit; it starts then, where `postledger work` runs: 2026-12-01T09:00:00+01:00, or "
    "'2026-12-01 09:00 Europe/Berlin'.",
)
@click.option(
    "--missed",
    type=length(),
    metavar="TIME|off",
    help="A start that comes later than this after --at is held for you to resume: 4h.",
)
@click.option(
    "--expires",
    type=length(),
    metavar="TIME|off",
    help="Who has not been written to so long after the start is skipped: off.",
)
@click.option(
    "--rate",
    type=rate,
    metavar="N/UNIT|off",
    help="Mails per s, m, h or d, evenly: 100/s. It belongs to --via: all its campaigns and workers share it.",
)
@click.option("--dry-run", is_flag=True, help="Check everything, show the first mail's head, write nothing.")
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Sends at a time.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 10_000),
    help="Tries until a recipient has failed: 5; transient replies end by --give-up alone unless this is given.",
)
@click.option(
    "--give-up", type=duration(timedelta(seconds=1)), metavar="TIME", help="Age at which transient replies end: 24h."
)
@click.option(
    "--max-errors",
    type=percent,
    metavar="N%|off",
    help="Share of failures among the last outcomes above which it pauses: 50% of 1,000.",
)
@click.option(
    "--track",
    type=tracks,
    metavar="opens,clicks|off",
    help="What is noted of its readers, through pictures and links that lead to --url: off.",
)
@click.option("--priority", type=click.IntRange(-1_000_000, 1_000_000), help="Higher ones are served first: 0.")
@click.option("--unknown", type=click.Choice(["resend", "hold"]), help="What follows an unknown outcome: resend.")
@click.option(
    "--grace",
    type=duration(),
    default="30s",
    metavar="TIME",
    help="What sends under way get to finish when stopped: 30s.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_obj
def send(given: Given, /, **flags: Any) -> int:
    """Send a letter to the people of a file, a query or a list, and show what became of each.

    Everything is checked first, then people and letter are written down in one transaction, then sent. Whatever stops
    it, the same command goes on: nobody is queued twice. The columns are the letter's variables.
    """
    with ExitStack() as files:
        job = job_of(given, Flags(**flags), files)
        return run(given, job.run)


def job_of(given: Given, flags: Flags, files: ExitStack) -> Job:
    """All that can be found wrong without a database is found here."""
    config = given.config()
    check_tracks(flags.track, config)
    letter = read_letter(flags.subject, flags.mail_from, flags.html, flags.text, base_url=config.url)
    name = campaign_name(flags.name, flags.html, flags.subject)
    provider = provider_of(flags.via, concurrency=flags.concurrency)

    def check(columns: Columns, where: str) -> None:
        check_columns(letter, columns, where)

    people = people_of(flags.to, flags.query, flags.list, check=check, files=files)
    if not flags.quiet:
        for warning in (*letter.warnings, *moment_notes(flags.at)):
            note(f"note: {warning}")
    return Job(
        config=config,
        order=Order(
            name,
            letter.mail_from,
            flags.via,
            letter.source,
            unknown=flags.unknown,
            attempts=flags.attempts,
            give_up=flags.give_up,
            priority=flags.priority,
            expires=flags.expires,
            missed_after=flags.missed,
            max_errors=flags.max_errors,
            track=flags.track,
            at=None if flags.at is None else flags.at.at,
            rate=flags.rate,
            list=people.list if isinstance(people, FromList) else None,
            unit=people.unit,
        ),
        variables=letter.variables,
        people=people,
        check=check,
        provider=provider,
        options=WorkerOptions(concurrency=flags.concurrency, grace=flags.grace.total_seconds(), base_url=config.url),
        json=given.json,
        quiet=flags.quiet,
        no_wait=flags.no_wait or flags.at is not None,
        dry_run=flags.dry_run,
    )
