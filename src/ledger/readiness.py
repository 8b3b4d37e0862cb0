"""What stands between a campaign and its start: its letter, its people, and what the letter needs of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, cast

from attrs import frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import ConflictError, DataError
from ..messages.checklist import Draft, Problem, check, required_variables
from . import writing
from .campaigns import Campaign

sql = Blocks("postledger.ledger", "readiness.sql")


@frozen
class Readiness:
    """`audience`: all who are written down; `pending` would be sent to, `skipped` are suppressed or have left."""

    audience: int
    pending: int
    skipped: int
    variables: Sequence[str]
    """What the letter cannot do without."""
    problems: Sequence[Problem]


async def look(conn: Connection, campaign: Campaign, base_url: str | None) -> Readiness:
    """All that is known without asking a relay; errors first. `base_url` is POSTLEDGER_URL."""
    people = await fetch_one(conn, sql.people, campaign.id)
    draft = _draft(campaign)
    kind = cast('Literal["bulk", "standing"]', campaign.settings.kind)
    problems = check(draft, kind=kind, base_url=base_url)
    variables = _variables(draft)
    problems += _nobody(campaign, people["pending"], people["skipped"])
    if people["audience"]:
        rows = await conn.fetch(writing.sql.never_given, campaign.id, sorted(variables))
        problems += [_never_given(row["name"]) for row in rows]
    problems.sort(key=lambda problem: problem.severity)
    return Readiness(people["audience"], people["pending"], people["skipped"], sorted(variables), problems)


async def check_audience(conn: Connection, campaign_id: int, expected: int) -> None:
    """Whether as many people are written down as somebody thinks; their number is still when the campaign is locked.

    Raises ConflictError.
    """
    found: int = (await fetch_one(conn, sql.people, campaign_id))["audience"]
    if found != expected:
        raise ConflictError(
            f"expected_audience is {expected}, and {found} are written down: look at the recipients, then say {found}"
        )


def _draft(campaign: Campaign) -> Draft:
    source, settings = campaign.source, campaign.settings
    return Draft(source.subject, settings.mail_from, source.html or "", source.text, settings.reply_to)


def _variables(draft: Draft) -> frozenset[str]:
    try:
        return required_variables(draft.letter())
    except DataError:
        return frozenset()  # `check` says what is wrong with it


def _nobody(campaign: Campaign, pending: int, skipped: int) -> Iterator[Problem]:
    if campaign.settings.kind == "standing" or pending:
        return
    if skipped:
        reason = f"all {skipped} are suppressed or have unsubscribed"
        yield Problem("recipients", reason, "nothing would be sent", "warning")
    elif campaign.status in ("draft", "scheduled"):
        yield Problem("recipients", "nobody is written down", "add people: POST /v1/campaigns/{id}/recipients")


def _never_given(name: str) -> Problem:
    remedy = f'add it to the people, correct the letter, or give a default, {{{{ {name}|default("...") }}}}'
    return Problem("data", f"the letter uses {{{{ {name} }}}}, and no recipient has it", remedy)
