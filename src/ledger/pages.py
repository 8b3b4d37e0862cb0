"""Lists, a page at a time: campaigns and recipients. A cursor is opaque outside: it is the last id of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import frozen

from ..database import Blocks, Connection
from ..errors import DataError

sql = Blocks("postledger.ledger", "pages.sql")


@frozen
class Page:
    """`next` is the cursor of the page behind it; None: that was all."""

    items: Sequence[Any]
    next: str | None


async def campaign_ids(conn: Connection, *, after: str | None, limit: int) -> Page:
    """The ids of campaigns, newest first. Raises DataError for a cursor that is none."""
    rows = await conn.fetch(sql.campaigns, _cursor(after), limit + 1)
    ids = [row["id"] for row in rows]
    return Page(ids[:limit], str(ids[limit - 1]) if len(ids) > limit else None)


async def recipients(conn: Connection, campaign_id: int, *, status: str | None, after: str | None, limit: int) -> Page:
    """Rows with delivery_id, key, email, name, status, attempt, due_at, version and feedback. Raises DataError."""
    rows = await conn.fetch(sql.recipients, campaign_id, _cursor(after) or 0, status, limit + 1)
    return Page(rows[:limit], str(rows[limit - 1]["delivery_id"]) if len(rows) > limit else None)


async def first_recipient(conn: Connection, campaign_id: int) -> dict[str, Any] | None:
    """Delivery id, key, email, name and data of the recipient who came first."""
    row = await conn.fetchrow(sql.first_recipient, campaign_id)
    return None if row is None else dict(row)


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise DataError(f"--after {text[:40]!r} is no cursor: give the `next` of the page before")
    return int(text)
