"""A campaign's log read again, with the state after each event."""

from collections.abc import AsyncIterator
from typing import Any

from ..database import Blocks, Connection, cursor
from ..events.fold import (
    CampaignState,
    DeliveryState,
    ReplayError,
    State,
    StreamError,
    evolve_campaign,
    evolve_delivery,
)
from ..events.machines import DELIVERY, DeliveryStatus
from ..events.text import read_moment, write_moment
from ..events.types import CampaignEvent, DeliveryEvent, Recorded
from .records import Row, event_json, read_event
from .snapshot import CHUNK, snapshot

sql = Blocks("postledger.projections", "replay.sql")

# In a delivery each event leads to one status, wherever it came from.
_LEADS_TO = {row.event: row.to_status for row in DELIVERY}


async def replay(conn: Connection, campaign_id: int) -> AsyncIterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each event in sealed order with the state of its stream after it, in flat memory whatever the audience.

    Holds a snapshot on `conn` until it is exhausted or closed: leave it early by `aclosing` alone. Raises
    ReplayError or UnreadableEvent at the first event that cannot stand where it stands.
    """
    campaign: CampaignState | None = None
    async with snapshot(conn):
        async for row in await cursor(conn, sql.replay, campaign_id, prefetch=CHUNK):
            recorded = read_event(row)
            try:
                state = _after(row, recorded, campaign)
            except StreamError as reason:
                raise ReplayError(recorded, reason) from reason
            if isinstance(state, CampaignState):
                campaign = state
            yield event_json(row), state_json(state)


def _after(row: Row, recorded: Recorded, campaign: CampaignState | None) -> State:
    event = recorded.event
    if isinstance(event, DeliveryEvent):
        return evolve_delivery(_before(row), event, recorded.version)
    if isinstance(event, CampaignEvent):
        return evolve_campaign(campaign, event, recorded.version)
    raise AssertionError(f"no campaign has {event.type}")


def _before(row: Row) -> DeliveryState | None:
    """The delivery's state before the event; what stands before it was found sound on the way."""
    if row["change"] is None:
        return None
    version, type_, due_at = row["change"]
    status = _LEADS_TO[type_]
    due = read_moment(due_at) if status is DeliveryStatus.PENDING else None
    return DeliveryState(status, int(row["attempt"]), due, int(version))


def state_json(state: State) -> dict[str, Any]:
    """The public form of a state."""
    match state:
        case DeliveryState():
            due_at = state.due_at and write_moment(state.due_at)
            return {"status": state.status, "attempt": state.attempt, "due_at": due_at, "version": state.version}
        case CampaignState():
            return {"status": state.status, "version": state.version, "pause": _pause(state)}


def _pause(state: CampaignState) -> dict[str, Any] | None:
    if state.pause_reason is None:
        return None
    return {"reason": state.pause_reason, "resume_at": state.resume_at and write_moment(state.resume_at)}
