"""`postledger webhooks`: what providers told us that is to be read anew, or that belongs to no mail."""

from __future__ import annotations

import click

from ..config import PROVIDERS
from ..http.webhooks.rereading import Reread, reread_all
from ..ledger import feedback
from ..ledger.documents import moment
from .connecting import appending, connected
from .exits import Exit
from .options import Given, Group
from .output import document, number, say, table
from .runner import Interrupts, run

PAGE = 100


@click.group(cls=Group, short_help="Read posts of providers anew, list what is theirs alone.")
def webhooks() -> None:
    """What providers post to `serve` at /webhooks/PROVIDER, beside what it does by itself."""


@webhooks.command(
    short_help="Read what was posted anew.",
    example="""
    postledger webhooks reprocess --provider sendgrid
    """,
)
@click.option("--provider", type=click.Choice(PROVIDERS), help="Of this one alone; else of all.")
@click.option("--faults", is_flag=True, help="Only what could not be read, or not wholly, when it came.")
@click.pass_obj
def reprocess(given: Given, provider: str | None, faults: bool) -> int:
    """Read the posts that are kept (90 days) anew, after an update of Postledger reads them better.

    What was read wrongly is put right by events that are added: Retracted, then what is right. A suppression that
    nothing else asks for is lifted. Repeated, it changes nothing more.
    """

    async def act(interrupts: Interrupts) -> int:
        async with appending(given.config()) as conn:
            done = await reread_all(conn, provider=provider, faults_only=faults)
        _show(given, done)
        return Exit.OK

    return run(given, act)


def _show(given: Given, done: Reread) -> None:
    if given.json:
        document({"payloads": done.payloads, "added": done.added, "changed": done.changed, "faults": done.faults})
        return
    say(
        f"{number(done.payloads)} posts read: {number(done.added)} things new, {number(done.changed)} put right, "
        f"{number(done.faults)} posts with something that cannot be read"
    )


@webhooks.command(example="postledger webhooks unlinked --json | jq '.items[].message_id'")
@click.option("--before", type=int, metavar="ID", help="The page behind this id.")
@click.pass_obj
def unlinked(given: Given, before: int | None) -> int:
    """What providers said of mails that are not found here: the latest first.

    It is looked for again for a day and a half; mails that others send through the same account are never found.
    """

    async def act(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            found = await feedback.unlinked(conn, before=before, limit=PAGE + 1)
        page, rest = found[:PAGE], found[PAGE:]
        if given.json:
            items = [
                {
                    "id": str(one.id),
                    "post": str(one.inbox_id),
                    "provider": one.provider,
                    "kind": one.kind,
                    "message_id": one.message_id,
                    "occurred_at": moment(one.occurred_at),
                    "noted_at": moment(one.noted_at),
                    "next_look_at": moment(one.link_at),
                }
                for one in page
            ]
            document({"items": items, "next": str(page[-1].id) if rest else None})
            return Exit.OK
        rows = [
            (
                one.id,
                one.provider,
                one.kind,
                one.message_id or "",
                moment(one.noted_at),
                (one.link_at and moment(one.link_at)) or "",
            )
            for one in page
        ]
        table(("id", "provider", "kind", "message id", "noted at", "next look at"), rows)
        return Exit.OK

    return run(given, act)
