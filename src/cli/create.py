"""`postledger campaign create`: a campaign without people, written down and not started."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import click
from attrs import frozen

from ..ledger import writing
from ..ledger.documents import campaign_document
from ..ledger.senders import Rate
from ..ledger.writing import Order
from .connecting import appending
from .exits import Exit
from .letters import Letter, campaign_name, read_letter
from .options import Command, Given, duration
from .output import document, note, say
from .runner import run
from .timing import length, percent, rate
from .tracking import check_tracks, tracks
from .via import provider_of


@frozen
class Flags:
    """The command line of `campaign create`."""

    kind: Literal["bulk", "standing"]
    name: str
    subject: str
    mail_from: str
    html: str
    text: str | None
    via: str
    attempts: int | None
    give_up: timedelta | None
    priority: int | None
    unknown: str | None
    expires: timedelta | None
    rate: Rate | Literal["off"] | None
    max_errors: int | None
    track: tuple[str, ...] | None


@click.command(
    cls=Command,
    short_help="Write a campaign down, without people.",
    example="""
    postledger campaign create --kind standing --name welcome --subject "Welcome, {{ name }}" \\
        --from "Shop <hello@shop.example>" --html welcome.html --via "smtp://user:password@relay.example:587"
    postledger campaign start welcome
    psql -c "SELECT postledger.enqueue('welcome', 'ann@x.example', name => 'Ann')"
    """,
)
@click.option(
    "--kind",
    type=click.Choice(["bulk", "standing"]),
    default="bulk",
    show_default=True,
    help="A standing one takes messages one by one, by enqueue() in your application's transactions, and never ends.",
)
@click.option("--name", required=True, help="By which applications and commands call it.")
@click.option("--subject", required=True, help="Subject; a template like the letter.")
@click.option("--from", "mail_from", metavar="ADDRESS", required=True, help='Sender: "Name <address>".')
@click.option("--html", metavar="FILE", required=True, help="The letter.")
@click.option("--text", metavar="FILE", help="Its text version; made from the HTML where none is given.")
@click.option("--via", metavar="URL", required=True, help="Provider: smtp://, smtps://, file:///folder, null://.")
@click.option("--attempts", type=click.IntRange(1, 10_000), help="Tries until a recipient has failed: 5.")
@click.option(
    "--give-up", type=duration(timedelta(seconds=1)), metavar="TIME", help="Age at which transient replies end: 24h."
)
@click.option("--priority", type=click.IntRange(-1_000_000, 1_000_000), help="Higher ones are served first: 0.")
@click.option("--unknown", type=click.Choice(["resend", "hold"]), help="What follows an unknown outcome: resend.")
@click.option(
    "--expires",
    type=length(),
    metavar="TIME|off",
    help="What has not been sent so long after it was due (bulk: after the start) is skipped: off.",
)
@click.option(
    "--rate", type=rate, metavar="N/UNIT|off", help="Mails per s, m, h or d through --via, for all its campaigns."
)
@click.option("--max-errors", type=percent, metavar="N%|off", help="Share of failures above which it pauses: 50%.")
@click.option(
    "--track",
    type=tracks,
    metavar="opens,clicks|off",
    help="What is noted of its readers, through pictures and links that lead to --url: off.",
)
@click.pass_obj
def create(given: Given, /, **flags: Any) -> int:
    """Write a campaign down, to be started later: `campaign start`, `campaign schedule`.

    Again with the same name, before it has begun, changes it. People come in by `postledger send --name NAME`, or,
    into a standing one, by SQL: enqueue(campaign, email, key, name, data, due_at).
    """
    said = Flags(**flags)
    check_tracks(said.track, given.config())
    letter = read_letter(
        said.subject, said.mail_from, said.html, said.text, base_url=given.config().url, kind=said.kind
    )
    provider_of(said.via)
    return run(given, lambda _: _create(given, said, letter))


async def _create(given: Given, flags: Flags, letter: Letter) -> int:
    order = Order(
        campaign_name(flags.name, flags.html, flags.subject),
        letter.mail_from,
        flags.via,
        letter.source,
        unknown=flags.unknown,
        attempts=flags.attempts,
        give_up=flags.give_up,
        priority=flags.priority,
        expires=flags.expires,
        max_errors=flags.max_errors,
        track=flags.track,
        rate=flags.rate,
        kind=flags.kind,
    )
    async with appending(given.config(), install=True) as conn:
        campaign_id, is_new = await writing.draft(conn, order)
        shown = await campaign_document(conn, campaign_id)
    for warning in letter.warnings:
        note(f"note: {warning}")
    if given.json:
        document(shown)
        return Exit.OK
    say(f'campaign "{shown["name"]}" (id {shown["id"]}): {"written down" if is_new else "is there"}, {shown["status"]}')
    if letter.variables:
        say(f"its letter needs of each recipient: {', '.join(sorted(letter.variables))}")
    if shown["status"] == "draft":
        note(f"to begin: postledger campaign start {shown['id']}")
    return Exit.OK
