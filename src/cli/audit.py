"""`postledger audit`: what happened, and whether the tables say the same as the log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, cast

import click

from ..database import Connection
from ..errors import UnavailableError
from ..events.fold import ReplayError
from ..events.text import write_moment
from ..ledger.documents import moment as write_time
from ..ledger.moments import Moment
from ..projections.as_of import AsOf
from ..projections.as_of import as_of as read_as_of
from ..projections.find import FoundCampaign, FoundRecipient, find_campaign, find_recipient
from ..projections.history import history as read_history
from ..projections.records import UnreadableEvent
from ..projections.replay import replay as read_replay
from ..projections.verify import Verification
from ..projections.verify import verify as compare
from .connecting import connected, opened
from .exits import Exit
from .options import Given, Group, not_built_command
from .output import complain, document, flush, json_line, note, number, say, table
from .runner import Interrupts, run
from .timing import moment, moment_notes

CANNOT_DECIDE = 2
SHOWN = 20


@click.group(cls=Group, short_help="Ask the log what happened, and check it.")
def audit() -> None:
    """Ask the log: what became of somebody, how a campaign went, whether the tables say the same."""


for _name in ("export", "prove", "import"):
    audit.add_command(not_built_command(f"audit {_name}"))


@audit.command(
    example="""
    postledger audit history "spring news" ann@x.example
    """,
)
@click.argument("campaign")
@click.argument("recipient")
@click.pass_obj
def history(given: Given, campaign: str, recipient: str) -> int:
    """Everything that happened to one recipient, in order.

    RECIPIENT is a key, an address or a delivery id. Where CAMPAIGN is the name of a standing one, all its generations
    are looked through.
    """

    async def show(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            at = await find_campaign(conn, campaign)
            who = await find_recipient(conn, at, recipient)
            events = await read_history(conn, who.campaign_id, who.delivery_id)
        _show_history(given, at, who, events)
        return Exit.OK

    return run(given, show)


def _show_history(given: Given, at: FoundCampaign, who: FoundRecipient, events: list[dict[str, Any]]) -> None:
    if given.json:
        person = {"delivery_id": str(who.delivery_id), "key": who.key, "email": who.email}
        campaign = {"id": str(who.campaign_id), "name": at.name}
        document({"campaign": campaign, "recipient": person, "items": events})
        return
    say(f'{who.email or "an erased person"} in campaign "{at.name}" (delivery {who.delivery_id})')
    rows = [(event["at"], event["block"] or "-", event["type"], _details(event["body"])) for event in events]
    table(("at", "block", "event", "details"), rows, right=("block",))


def _details(body: dict[str, Any]) -> str:
    """Digests and ids are for programs: --json shows them."""
    hidden = ("digest", "content_sha256", "template", "claim_id", "source")
    return ", ".join(f"{name} {value}" for name, value in body.items() if name not in hidden and value is not None)


@audit.command(
    short_help="Every event, with the state after it.",
    example="""
    postledger audit replay "spring news" | jq 'select(.event.type == "Failed")'
    """,
)
@click.argument("campaign")
@click.pass_obj
def replay(given: Given, campaign: str) -> int:
    """Every event of a campaign with the state after it, in the order of the sealed log: NDJSON of {event, state}.

    Events that are in no block yet come last, with `block` null.

    Exit code 1: an event cannot stand where it stands; what is before it was shown.
    """

    async def show(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            at = await find_campaign(conn, campaign)
            try:
                await _replay(conn, at.id)
            except (ReplayError, UnreadableEvent) as error:
                flush()
                complain(f"{error}; 'postledger audit verify' lists all that is wrong")
                return Exit.INCOMPLETE
        flush()
        return Exit.OK

    return run(given, show)


async def _replay(conn: Connection, campaign_id: int) -> None:
    async with aclosing(_steps(conn, campaign_id)) as steps:
        async for event, state in steps:
            json_line({"event": event, "state": state})


def _steps(conn: Connection, campaign_id: int) -> AsyncGenerator[tuple[dict[str, Any], dict[str, Any]]]:
    return cast("AsyncGenerator[tuple[dict[str, Any], dict[str, Any]]]", read_replay(conn, campaign_id))


@audit.command(
    "as-of",
    short_help="How a campaign stood at a time.",
    example="""
    postledger audit as-of "spring news" --at 2026-12-01T09:00:00Z
    postledger audit as-of "spring news" --at "2026-12-01 09:00 Europe/Berlin" --json | jq .counts
    """,
)
@click.argument("campaign")
@click.option(
    "--at", type=moment, metavar="TIME", required=True, help="An instant with its offset or Z, or with an IANA zone."
)
@click.pass_obj
def as_of(given: Given, campaign: str, at: Moment) -> int:
    """How many recipients were in each state at a time: by the last block that had been sealed then.

    The answer is final once a later block has been sealed. Until then, and for a time that is still to come, it is that
    of the newest block, and a note says how many events are in none yet. The server's clock is the one that counts.
    """

    async def look(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            found = await find_campaign(conn, campaign)
            then = await read_as_of(conn, found.id, at.at)
        for warning in [*moment_notes(at), *_as_of_notes(then)]:
            note(f"note: {warning}")
        _show_as_of(given, found, at, then)
        return Exit.OK

    return run(given, look)


def _as_of_notes(then: AsOf) -> Iterator[str]:
    if then.ahead:
        yield "that time is still to come; this is how it stands by the newest block"
    if then.unsealed:
        yield f"{number(then.unsealed)} events of this campaign are in no block yet, so they are not in this answer"


def _show_as_of(given: Given, found: FoundCampaign, at: Moment, then: AsOf) -> None:
    if given.json:
        block = None if then.block_no is None else str(then.block_no)
        named = {"campaign": {"id": str(found.id), "name": found.name}, "at": write_moment(at.at)}
        told = {"block": block, "sealed_at": write_time(then.sealed_at), "counts": dict(then.counts)}
        document({**named, **told, "final": then.final, "unsealed": then.unsealed})
        return
    if then.sealed_at is None:
        say(f'campaign "{found.name}": nothing had been sealed by {at}')
        return
    say(f'campaign "{found.name}" as of {write_moment(then.sealed_at)}, block {then.block_no}')
    table(("outcome", "recipients"), [(s, number(n)) for s, n in then.counts.items()], right=("recipients",))


@audit.command(
    short_help="Compare the tables with the log.",
    example="""
    postledger audit verify
    postledger audit verify "spring news" --json
    """,
)
@click.argument("campaign", required=False)
@click.pass_obj
def verify(given: Given, campaign: str | None) -> int:
    """Compare the tables with the fold of the log, while traffic runs: one campaign, or everything.

    Events that are in no block yet are counted, and no difference: that is so for a moment after each commit.

    Exit code 0: equal. 1: they differ. 2: it cannot be decided.
    """

    async def check(interrupts: Interrupts) -> int:
        async with opened(given.config()) as database:
            async with database.connection(label="cli") as conn:
                at = None if campaign is None else (await find_campaign(conn, campaign)).id
            try:
                async with database.connection(label="verify") as conn:
                    found = await compare(conn, at)
            except UnavailableError as error:
                complain(f"cannot decide: {error}")
                return CANNOT_DECIDE
        _show_verification(given, found)
        return Exit.OK if found.equal else Exit.INCOMPLETE

    return run(given, check)


def _show_verification(given: Given, found: Verification) -> None:
    if given.json:
        document(found.as_json())
        return
    if found.equal:
        say(f"equal: {number(found.checked)} recipients are as the log says")
    else:
        say(f"{number(found.found)} differences in {number(found.total)} recipients")
        rows = [(d.campaign_id, d.delivery_id, d.position, d.expected, d.actual) for d in found.differences[:SHOWN]]
        table(("campaign", "delivery", "position", "expected", "actual"), rows)
    if found.unsealed:
        say(f"{number(found.unsealed)} events are in no block yet")
