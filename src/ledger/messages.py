"""Single messages through standing campaigns, as applications write them that do not speak SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


async def enqueue(conn: Connection, campaign: str, messages: Sequence[Message]) -> list[tuple[int, bool]]:
    """The delivery of each, in order, and whether it is new: a key that was written before is not written again.

    All of one `campaign`, in the caller's transaction. Nobody is woken: whoever commits does that afterwards. Raises
    InvalidAddress, and by SQLSTATE PL001 (no such campaign), PL002 (it takes no messages) and PL003 (what its column
    names is not acceptable, of one of them).
    """
    # In the order of keys: two that meet in several would wait for each other otherwise.
    order = sorted(range(len(messages)), key=lambda at: messages[at].key or "")
    sorted_ = [messages[at] for at in order]
    rows = await conn.fetch(
        sql.enqueue_all,
        campaign,
        [normalise(one.email).full for one in sorted_],
        [one.key for one in sorted_],
        [one.name for one in sorted_],
        [one.data for one in sorted_],
        [one.due_at for one in sorted_],
    )
    ids = {order[row["n"] - 1]: row["delivery_id"] for row in rows}
    return [
        (ids[at], True) if ids[at] is not None else (await _written(conn, campaign, one), False)
        for at, one in enumerate(messages)
    ]


async def _written(conn: Connection, campaign: str, message: Message) -> int:
    delivery_id: int = (await fetch_one(conn, sql.written, campaign, message.key))["delivery_id"]
    return delivery_id
