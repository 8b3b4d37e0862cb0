"""Streams against the rows that are folded from them, in words where they differ."""

from collections.abc import AsyncIterator, Callable, Iterable
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from ..database import Blocks, Connection
from ..events.fold import (
    CampaignState,
    DeliveryState,
    ReplayError,
    StreamError,
    VersionGap,
    evolve_campaign,
    evolve_delivery,
)
from ..events.text import write_moment
from ..events.types import CampaignEvent, DeliveryEvent, Recorded, StreamKind
from .differences import Difference, OutOfOrder, fault
from .records import Row, UnreadableEvent, read_event
from .shapes import shapes
from .snapshot import chunks

sql = Blocks("postledger.projections", "verify.sql")

S = TypeVar("S")


async def deliveries(conn: Connection, campaign_id: int) -> AsyncIterator[Difference]:
    """Where the log and recipient_queue differ. PostgreSQL compares; what it finds equal is never read."""
    async for rows in chunks(conn, sql.deliveries, campaign_id, shapes(StreamKind.DELIVERY)):
        streams = await read_streams(conn, campaign_id, [row["delivery_id"] for row in rows])
        for row in rows:
            events = streams.get(row["delivery_id"], [])
            found = compare(campaign_id, row["delivery_id"], events, _delivery_after, _delivery_words, _row_words(row))
            if found is not None:
                yield found


async def campaign(conn: Connection, campaign_id: int) -> AsyncIterator[Difference]:
    """Where the campaign's own stream and its row differ."""
    row = await conn.fetchrow(sql.campaign, campaign_id)
    streams = await read_streams(conn, campaign_id, [0])
    actual = _campaign_words(None if row is None else CampaignState(*row))
    found = compare(campaign_id, 0, streams.get(0, []), _campaign_after, _campaign_words, actual)
    if found is not None:
        yield found


async def system(conn: Connection) -> AsyncIterator[Difference]:
    """Where the system's stream cannot be read or has a gap; nothing is folded from it."""
    streams = await read_streams(conn, 0, [0])
    found = compare(0, 0, streams.get(0, []), _version_after, lambda _: "", "")
    if found is not None:
        yield found


async def read_streams(conn: Connection, campaign_id: int, ids: list[int]) -> dict[int, list[Row]]:
    """The events of these streams, each in its own order."""
    events = await conn.fetch(sql.streams, campaign_id, ids)
    return {stream: list(rows) for stream, rows in groupby(events, itemgetter("delivery_id"))}


def compare(
    campaign_id: int,
    delivery_id: int,
    events: Iterable[Row],
    after: Callable[[S | None, Recorded], S],
    words: Callable[[S | None], str],
    actual: str,
) -> Difference | None:
    """What is wrong with one stream, if anything is: its first bad event, else a row that does not follow from it."""
    state, last = None, None
    for row in events:
        try:
            recorded = read_event(row)
            state, last = _step(state, last, recorded, after)
        except (UnreadableEvent, ReplayError) as error:
            return fault(error)
    expected = words(state)
    return None if expected == actual else Difference(campaign_id, delivery_id, last, expected, actual)


def _step(
    state: S | None, last: int | None, recorded: Recorded, after: Callable[[S | None, Recorded], S]
) -> tuple[S, int | None]:
    """The state after an event, and the position of the last change."""
    try:
        if recorded.version is None:
            return after(state, recorded), last
        if last is not None and recorded.position < last:
            raise OutOfOrder(recorded.event.type, last)
        return after(state, recorded), recorded.position
    except StreamError as reason:
        raise ReplayError(recorded, reason) from reason


def _delivery_after(state: DeliveryState | None, recorded: Recorded) -> DeliveryState:
    assert isinstance(recorded.event, DeliveryEvent)
    return evolve_delivery(state, recorded.event, recorded.version)


def _campaign_after(state: CampaignState | None, recorded: Recorded) -> CampaignState:
    assert isinstance(recorded.event, CampaignEvent)
    return evolve_campaign(state, recorded.event, recorded.version)


def _version_after(version: int | None, recorded: Recorded) -> int:
    due = (version or 0) + 1
    if recorded.version != due:
        raise VersionGap(due, recorded.version, recorded.event.type)
    return due


def _row_words(row: Row) -> str:
    if row["status"] is None:
        return _delivery_words(None)
    return _delivery_words(DeliveryState(row["status"], row["attempt"], row["due_at"], row["version"]))


def _delivery_words(state: DeliveryState | None) -> str:
    if state is None:
        return "no row in recipient_queue"
    due = f", due {write_moment(state.due_at)}" if state.due_at else ""
    return f"{state.status}, attempt {state.attempt}, version {state.version}{due}"


def _campaign_words(state: CampaignState | None) -> str:
    if state is None:
        return "no row in campaigns"
    pause = f" ({state.pause_reason})" if state.pause_reason else ""
    until = f" until {write_moment(state.resume_at)}" if state.resume_at else ""
    return f"{state.status}{pause}{until}, version {state.version}"
