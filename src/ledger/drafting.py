"""Drafts of campaigns, for callers who send the letter itself: made once, changed until they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import asyncpg

from ..database import Blocks, Connection
from ..errors import ConflictError, DataError
from ..messages.checklist import Draft, Problem, check
from . import campaigns, scheduling
from .campaigns import Campaign, Settings, Source
from .senders import Sender
from .writing import differences

sql = Blocks("postledger.ledger", "drafting.sql")


class LetterError(DataError):
    """A letter that must not be sent: what is wrong, field by field."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(" | ".join(map(str, problems)))
        self.problems = problems


async def find_sender(conn: Connection, word: str) -> Sender | None:
    """The sender with this name, else with this id; None: there is none."""
    row = await conn.fetchrow(sql.sender_called, word)
    return None if row is None else Sender(**row)


def check_letter(settings: Settings, source: Source, base_url: str | None) -> None:
    """Raises LetterError. `base_url` is POSTLEDGER_URL."""
    draft = Draft(source.subject, settings.mail_from, source.html or "", source.text, settings.reply_to)
    kind = cast('Literal["bulk", "standing"]', settings.kind)
    found = [problem for problem in check(draft, kind=kind, base_url=base_url) if problem.severity == "error"]
    if found:
        raise LetterError(found)


async def create(conn: Connection, settings: Settings, source: Source) -> int:
    """A new draft; its id. Raises ConflictError where there is a campaign of this name."""
    try:
        async with conn.transaction():
            return await campaigns.draft(conn, settings, source)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "campaigns_name_generation_key":
            raise
    there = await campaigns.find_named(conn, settings.name)
    raise ConflictError(f"there is a campaign {settings.name!r} already, with the id {there}: choose another name")


async def change(conn: Connection, campaign: Campaign, settings: Settings, source: Source) -> bool:
    """The draft becomes this; False: it was this. `campaign` is locked. Raises ConflictError where it is no draft."""
    fields = differences(campaign, settings, source)
    if not fields:
        return False
    if campaign.status != "draft":
        remedy = ": take it back first, with at null" if campaign.status == "scheduled" else ""
        raise ConflictError(f'campaign "{campaign.settings.name}" is {campaign.status}, and no draft any more{remedy}')
    await campaigns.redraft(conn, campaign.id, settings, source, fields)
    return True


async def lock(conn: Connection, campaign_id: int) -> Campaign:
    """The campaign, alone for this transaction: nothing changes it until that ends. Raises NotFoundError."""
    await campaigns.read(conn, campaign_id)  # whoever asks for what is not there waits for nobody
    await conn.execute(scheduling.sql.lock, campaign_id)
    return await campaigns.read(conn, campaign_id)
