"""`postledger campaign`: how campaigns stand, and what an operator does to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import click

from ..database import Connection
from ..errors import UsageError
from ..ledger import operating, pages, scheduling
from ..ledger.campaigns import STATUSES
from ..ledger.documents import campaign_document, recipient_document
from ..ledger.moments import Moment
from ..ledger.writing import OFF
from ..projections.find import FoundCampaign, find_campaign, find_recipient
from . import report
from .connecting import appending, connected
from .create import create
from .exits import Exit
from .options import Given, Group
from .output import document, note, number, say, table
from .runner import Interrupts, run
from .timing import length, moment, moment_notes

Act = Callable[[Connection, FoundCampaign], Awaitable[str]]
"""Does something to a campaign, and says what."""


@click.group(cls=Group, short_help="See how campaigns stand, and steer them.")
def campaign() -> None:
    """See how campaigns stand; pause, resume, cancel, retry. CAMPAIGN is a name or an id.

    A standing campaign goes on in generations of a million messages under one name: `list` shows each, the name means
    the newest. pause, resume, cancel and retry by name reach those before it too, as far as they have not ended.
    """


campaign.add_command(create)


@campaign.command("list", example="postledger campaign list --json | jq '.items[].counts'")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--after", metavar="CURSOR", help="`next` of the page before.")
@click.pass_obj
def list_(given: Given, limit: int, after: str | None) -> int:
    """All campaigns, newest first."""

    async def show(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            page = await pages.campaign_ids(conn, after=after, limit=limit)
            items = [await campaign_document(conn, campaign_id) for campaign_id in page.items]
        if given.json:
            document({"items": items, "next": page.next})
            return Exit.OK
        columns = ("id", "name", "status", "audience", "sent", "failed", "unfinished")
        table(columns, map(_campaign_row, items), right=columns[3:])
        _more(page)
        return Exit.OK

    return run(given, show)


def _campaign_row(shown: dict[str, Any]) -> list[str]:
    counts = shown["counts"]
    numbers = (shown["audience"], counts["sent"], counts["failed"], counts["pending"] + counts["sending"])
    return [shown["id"], _called(shown), _status(shown), *map(number, numbers)]


def _called(shown: dict[str, Any]) -> str:
    return shown["name"] if shown["kind"] == "bulk" else f"{shown['name']} (generation {shown['generation']})"


def _status(shown: dict[str, Any]) -> str:
    if shown["pause"]:
        return report.paused(shown)
    until = f" for {report.clock_time(shown['scheduled_at'])}" if shown["status"] == "scheduled" else ""
    return f"{shown['status']}{until}"


@campaign.command(example='postledger campaign show "spring news"')
@click.argument("campaign")
@click.pass_obj
def show(given: Given, campaign: str) -> int:
    """One campaign: settings, state, counts per outcome."""

    async def look(conn: Connection, at: FoundCampaign) -> str:
        return ""

    return run(given, lambda _: _act(given, campaign, look, reads=True))


@campaign.command(
    short_help="Start it by itself at a time, or no more.",
    example="""
    postledger campaign schedule "spring news" --at "2026-12-01 09:00 Europe/Berlin"
    postledger campaign schedule "spring news" --off
    """,
)
@click.argument("campaign")
@click.option(
    "--at", type=moment, metavar="TIME", help="2026-12-01T09:00:00+01:00, or '2026-12-01 09:00 Europe/Berlin'."
)
@click.option("--off", is_flag=True, help="It starts when somebody says so, and no more by itself.")
@click.option("--missed", type=length(), metavar="TIME|off", help="A start that comes later than this is held: 4h.")
@click.pass_obj
def schedule(given: Given, campaign: str, at: Moment | None, off: bool, missed: timedelta | None) -> int:
    """Start a campaign by itself at a time, another time, or (--off) no more; before it has begun.

    The time is an instant with its offset or Z, or a time of day in an IANA zone. What that zone's clock skips is moved
    forward; of what comes twice it is the first. `postledger work` has to be running then; a start that it could only
    make up for much later (--missed) is held: paused, reason `missed`, for you to resume.
    """
    if (at is not None) + off != 1:
        raise UsageError("campaign schedule needs either --at TIME or --off")

    async def act(conn: Connection, found: FoundCampaign) -> str:
        if missed is not None:
            await scheduling.set_missed(conn, found.id, None if missed == OFF else missed)
        if at is None:
            done = await scheduling.schedule(conn, found.id, None)
            return "starts by itself no more" if done else "is not scheduled"
        for warning in moment_notes(at):
            note(f"note: {warning}")
        done = await scheduling.schedule(conn, found.id, at.at)
        return f"starts at {at}" if done else f"is scheduled for {at} already"

    return run(given, lambda _: _act(given, campaign, act))


@campaign.command(example='postledger campaign start "spring news"')
@click.argument("campaign")
@click.pass_obj
def start(given: Given, campaign: str) -> int:
    """Begin now, whatever was scheduled; running workers do it."""

    async def act(conn: Connection, at: FoundCampaign) -> str:
        return "started" if await scheduling.start(conn, at.id) else "is being sent already"

    return run(given, lambda _: _act(given, campaign, act))


@campaign.command(
    short_help="Stop sending for now.",
    example="""
    postledger campaign pause "spring news"
    postledger campaign pause "spring news" --until "2026-12-01 09:00 Europe/Berlin"
    """,
)
@click.argument("campaign")
@click.option("--until", type=moment, metavar="TIME", help="It goes on by itself then; else when somebody resumes it.")
@click.pass_obj
def pause(given: Given, campaign: str, until: Moment | None) -> int:
    """Stop sending for now. Once this has answered, nothing new begins; what is under way ends in a second or so.

    One that would go on by itself, after a quota say, stays paused from now on, or until the time that you name.
    """

    async def act(conn: Connection, at: FoundCampaign) -> str:
        for warning in moment_notes(until):
            note(f"note: {warning}")
        moment = None if until is None else until.at
        done = await _in_all(conn, at, lambda campaign_id: scheduling.pause(conn, campaign_id, moment))
        return ("paused" if done else "is paused already") + (f" until {until}" if until else "")

    return run(given, lambda _: _act(given, campaign, act))


@campaign.command(example='postledger campaign resume "spring news"')
@click.argument("campaign")
@click.pass_obj
def resume(given: Given, campaign: str) -> int:
    """Go on with a paused campaign; running workers do it."""
    return run(given, lambda _: _act(given, campaign, _wish("resume", "resumed", "is being sent already")))


@campaign.command(example='postledger campaign cancel "spring news"')
@click.argument("campaign")
@click.pass_obj
def cancel(given: Given, campaign: str) -> int:
    """End a campaign for ever. Whoever still waits gets nothing; there is no way back."""
    wish = _wish("cancel", "cancelled", "is cancelled already")

    async def act(conn: Connection, at: FoundCampaign) -> str:
        said = await wish(conn, at)
        swept = 0
        for campaign_id in await operating.open_generations(conn, at.generations):
            swept += await operating.sweep(conn, campaign_id)
        return f"{said}; {number(swept)} who waited get nothing" if swept else said

    return run(given, lambda _: _act(given, campaign, act))


@campaign.command(
    short_help="Send failed and unknown ones once more.",
    example="""
    postledger campaign retry "spring news"
    postledger campaign retry "spring news" ann@x.example
    """,
)
@click.argument("campaign")
@click.argument("recipient", required=False)
@click.pass_obj
def retry(given: Given, campaign: str, recipient: str | None) -> int:
    """Send the failed and unknown ones once more, never the suppressed; all of them, or one RECIPIENT.

    An unknown one may have got the mail already. A completed campaign is open again; running workers, or the same
    `send`, do the rest.
    """

    async def act(conn: Connection, at: FoundCampaign) -> str:
        if recipient is not None:
            who = await find_recipient(conn, at, recipient)
            count = await operating.retry(conn, who.campaign_id, [who.delivery_id])
        else:
            count = sum([await operating.retry(conn, campaign_id, None) for campaign_id in at.generations])
        return f"{number(count)} to be tried again"

    return run(given, lambda _: _act(given, campaign, act))


@campaign.command(
    example="""
    postledger campaign recipients "spring news" --status failed
    """
)
@click.argument("campaign")
@click.option("--status", type=click.Choice(STATUSES), help="Only those.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--after", metavar="CURSOR", help="`next` of the page before.")
@click.pass_obj
def recipients(given: Given, campaign: str, status: str | None, limit: int, after: str | None) -> int:
    """Who is in a campaign, and where each of them stands."""

    async def look(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            found = await find_campaign(conn, campaign)
            page = await pages.recipients(conn, found.id, status=status, after=after, limit=limit)
        items = [recipient_document(row) for row in page.items]
        if given.json:
            document({"items": items, "next": page.next})
            return Exit.OK
        columns = ("delivery_id", "key", "email", "status", "attempt", "due_at")
        table(columns, [[item[column] for column in columns] for item in items])
        _more(page)
        return Exit.OK

    return run(given, look)


def _wish(command: operating.Command, done: str, already: str) -> Act:
    async def act(conn: Connection, at: FoundCampaign) -> str:
        changed = await _in_all(conn, at, lambda campaign_id: operating.command(conn, campaign_id, command))
        return done if changed else already

    return act


async def _in_all(conn: Connection, at: FoundCampaign, do: Callable[[int], Awaitable[bool]]) -> bool:
    """In every generation that has not ended; the newest, which comes first, says whether anything changed."""
    changed = await do(at.id)
    for campaign_id in await operating.open_generations(conn, at.generations[1:]):
        await do(campaign_id)
    return changed


async def _act(given: Given, word: str, act: Act, *, reads: bool = False) -> int:
    async with (connected if reads else appending)(given.config()) as conn:
        found = await find_campaign(conn, word)
        said = await act(conn, found)
        while (newest := await find_campaign(conn, word)).id != found.id:  # a generation has begun meanwhile
            found, said = newest, await act(conn, newest)
        shown = await campaign_document(conn, found.id)
    if given.json:
        document(shown)
    else:
        _show(shown, said)
    return Exit.OK


def _show(shown: dict[str, Any], said: str) -> None:
    say(f'campaign "{shown["name"]}" (id {shown["id"]}): {said or _status(shown)}')
    if said:
        return
    table(("outcome", "recipients"), [(s, number(n)) for s, n in shown["counts"].items()], right=("recipients",))
    for name in ("subject", "from", "created_at", "scheduled_at", "started_at", "finished_at", "unknown", "attempts"):
        say(f"{name:<12} {shown[name] if shown[name] is not None else '-'}")
    for name in ("give_up", "expires", "missed", "max_errors", "priority", "rate"):
        say(f"{name:<12} {shown[name] if shown[name] is not None else 'off'}")
    say(f"{'via':<12} {shown['sender']['url']}")


def _more(page: pages.Page) -> None:
    if page.next is not None:
        note(f"more: --after {page.next}")
