"""The lines of Server-Sent Events: what a subscriber's connection carries."""

from __future__ import annotations

from typing import Any

import orjson

from ...events.text import write_moment
from ...projections.follow import Checkpoint
from ...projections.progress import Standing
from ...projections.records import Row, event_json

HEARTBEAT = b":\n\n"

RETRY = b"retry: 1000\n\n"
"""How soon a browser comes back, milliseconds."""


def event_frame(row: Row) -> bytes:
    """One event; its id is the checkpoint behind it."""
    at = Checkpoint(row["block_no"], row["position"])
    return b"id: %s\nevent: event\ndata: %s\n\n" % (at.encode().encode(), orjson.dumps(event_json(row)))


def place_frame(at: Checkpoint) -> bytes:
    """No event, but how far the stream has come: what a subscriber does not want is not read for it again."""
    return b"id: %s\n\n" % at.encode().encode()


def progress_frame(standing: Standing) -> bytes:
    """How a campaign stands. It has no id: it is a state, which the next one replaces, and no part of the log."""
    return b"event: progress\ndata: %s\n\n" % orjson.dumps(progress_json(standing))


def progress_json(standing: Standing) -> dict[str, Any]:
    """The public form of how a campaign stands by the sealed log."""
    counts = {
        name: getattr(standing, name)
        for name in ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")
    }
    times = {name: getattr(standing, name) for name in ("first_sent_at", "last_sent_at", "sealed_at")}
    return {
        "campaign_id": str(standing.campaign_id),
        "status": standing.status,
        "audience": sum(counts.values()),
        "counts": counts,
        **{name: None if at is None else write_moment(at) for name, at in times.items()},
        "block": str(standing.block_no),
    }
