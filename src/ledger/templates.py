"""Letters by the hash of their content: written once, never changed, found again by what they say."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError
from . import campaigns
from .campaigns import Source
from .pages import Page

sql = Blocks("postledger.ledger", "templates.sql")


@frozen
class Template:
    """A letter as its author wrote it."""

    hash: str
    subject: str
    html: str | None
    text: str | None
    created_at: datetime


async def page(conn: Connection, *, after: str, limit: int) -> Page:
    """Letters whose hash comes after this one (empty: from the beginning)."""
    rows = await conn.fetch(sql.page, after, limit + 1)
    found = [Template(**row) for row in rows[:limit]]
    return Page(found, found[-1].hash if len(rows) > limit else None)


async def read(conn: Connection, template_hash: str) -> Template:
    """Raises NotFoundError."""
    row = await conn.fetchrow(sql.by_hash, template_hash)
    if row is None:
        raise NotFoundError(f"no letter has the hash {template_hash!r}: GET /v1/templates lists them all")
    return Template(**row)


async def keep(conn: Connection, source: Source) -> bool:
    """Writes a letter down under its hash; False: it was there."""
    status: str = await conn.execute(campaigns.sql.keep_template, source.hash, source.subject, source.html, source.text)
    return status == "INSERT 0 1"
