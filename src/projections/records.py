"""The log's rows as values: for the fold, and as JSON for people."""

from typing import Any, TypeAlias

import asyncpg
import orjson

from ..errors import PostledgerError
from ..events.codec import UndecodableEvent, decode
from ..events.stream import stream_kind
from ..events.text import write_moment
from ..events.types import Recorded

Row: TypeAlias = asyncpg.Record


class UnreadableEvent(PostledgerError):  # noqa: N818 - it names what was found, not what was done
    """An event that cannot be read, and where it stands."""

    def __init__(self, row: Row, reason: UndecodableEvent) -> None:
        where = f"campaign {row['campaign_id']}, delivery {row['delivery_id']}"
        super().__init__(f"event {row['position']} ({where}): {reason}")
        self.row = row
        self.reason = reason


def read_event(row: Row) -> Recorded:
    """The event of a row whose `body` is JSON text. Raises UnreadableEvent."""
    kind = stream_kind(row["campaign_id"], row["delivery_id"])
    try:
        event = decode(kind, row["type"], row["body"].encode())
    except UndecodableEvent as reason:
        raise UnreadableEvent(row, reason) from reason
    return Recorded(row["position"], row["campaign_id"], row["delivery_id"], row["version"], row["at"], event)


def event_json(row: Row) -> dict[str, Any]:
    """The public form of a row whose `body` is JSON text. `block` is null as long as the event is in none."""
    return {
        "position": str(row["position"]),
        "block": None if row["block_no"] is None else str(row["block_no"]),
        "campaign_id": str(row["campaign_id"]),
        "delivery_id": str(row["delivery_id"]),
        "version": row["version"],
        "type": row["type"],
        "at": write_moment(row["at"]),
        "body": _shown(row["body"]),
    }


def _shown(body: str) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        # PostgreSQL keeps numbers that no float holds. Nobody writes any, and whoever looks for tampering must see it.
        return {"unreadable": body}
