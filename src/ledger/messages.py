"""Single messages through standing campaigns, as applications write them that do not speak SQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from attrs import field, frozen

from ..database import Blocks, Connection, fetch_one
from ..messages.addresses import normalise

sql = Blocks("postledger.ledger", "messages.sql")


@frozen
class Message:
    """One mail to one person; `campaign` is the name or id of a standing campaign. A `key` is written once."""

    campaign: str
    email: str = field(repr=False)
    key: str | None = field(default=None, repr=False)
    name: str | None = field(default=None, repr=False)
    data: Mapping[str, Any] = field(factory=dict, repr=False)
    due_at: datetime | None = None


async def enqueue(conn: Connection, message: Message) -> tuple[int, bool]:
    """The delivery's id, and whether it is new: a key that was written before is not written again.

    Nobody is woken: whoever commits does that afterwards. Raises InvalidAddress, and by SQLSTATE PL001 (no such
    campaign), PL002 (it takes no messages) and PL003 (what its column names is not acceptable).
    """
    delivery_id: int | None = await conn.fetchval(
        sql.enqueue,
        message.campaign,
        normalise(message.email).full,
        message.key,
        message.name,
        message.data,
        message.due_at,
    )
    if delivery_id is not None:
        return delivery_id, True
    return (await fetch_one(conn, sql.written, message.campaign, message.key))["delivery_id"], False
