"""The sealed log for programs: in pages, and as a live stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...errors import DataError
from ...ledger import campaigns, limits
from ...ledger.log_documents import EventPage
from ...ledger.public import Id
from ...projections import follow
from ...projections.follow import Checkpoint
from ...projections.records import event_json
from ..feed.context import HUB, READERS
from ..feed.frames import RETRY
from ..feed.stream import Stream
from ..keys import CALLER, POOL
from ..problems import Problem
from ..route import Route
from ..streaming import stream_out
from ..wire import answer, read_query

MOST = 1_000
"""Events in a page."""

LOOKED_AT = 20_000
"""Events that one request passes over in search of a campaign's: then it answers with what it has."""

STREAMS = 1_000


@frozen
class EventsQuery:
    """Which part of the log."""

    after: str | None = limits.cursor()
    """The `next` of the page before, or the id of an event of the stream; without it, from the very first event."""
    limit: int = limits.page_size(100, MOST)
    campaign: Id | None = None
    """Events of this campaign alone."""


@frozen
class StreamQuery:
    """What to follow."""

    campaign: Id | None = None
    """One campaign; without it all of them, and contacts."""
    only: Literal["events", "progress"] | None = None
    """Events alone, or progress alone; without it both."""
    after: str | None = limits.cursor()
    """As Last-Event-ID, for who cannot send headers; without either, from now on."""


async def page(request: web.Request) -> web.Response:
    """Events of sealed blocks behind a checkpoint, each once, in an order that never changes."""
    asked = read_query(request, EventsQuery)
    after = _checkpoint(asked.after, "after")
    async with request.app[POOL].connection() as conn:
        found = await _read(conn, after or Checkpoint(), asked)
    items = [event_json(row) for row in found.events]
    return answer({"items": items, "next": found.checkpoint.encode(), "more": not found.is_last})


async def stream(request: web.Request) -> web.StreamResponse:
    """Server-Sent Events: what is sealed from now on, or since Last-Event-ID."""
    asked = read_query(request, StreamQuery)
    hub, pool = request.app[HUB], request.app[POOL]
    if hub.wanted.streams >= STREAMS or hub.ended:
        raise Problem(
            "unavailable", "too many streams are open here", remedy="come again", headers={"Retry-After": "5"}
        )
    named = "Last-Event-ID" if request.headers.get("Last-Event-ID") else "after"
    after = _checkpoint(request.headers.get("Last-Event-ID") or asked.after, named)
    async with pool.connection() as conn:
        if asked.campaign is not None:
            await campaigns.check_there(conn, asked.campaign)
        with _of(named):
            head = await follow.reachable_head(conn, after or Checkpoint())
    events, progress = asked.only != "progress", asked.only != "events"
    with hub.wanting(events=events, progress=progress):
        key_id = request[CALLER].key_id
        one = Stream(hub, pool, request.app[READERS], key_id, asked.campaign, events, progress, after or head)
        return await stream_out(request, _pieces(one), "text/event-stream", headers={"X-Accel-Buffering": "no"})


async def _pieces(one: Stream) -> AsyncGenerator[bytes, None]:
    yield RETRY + await one.first()
    while piece := await one.next():
        yield piece


async def _read(conn: Connection, after: Checkpoint, asked: EventsQuery) -> follow.Page:
    with _of("after"):
        if asked.campaign is None:
            return await follow.read_page(conn, after, asked.limit)
        return await _search(conn, after, asked.campaign, asked.limit)


async def _search(conn: Connection, after: Checkpoint, campaign_id: int, limit: int) -> follow.Page:
    """A campaign's events are spread over the log: looked for a thousand at a time, and not for ever."""
    found: list[Any] = []
    for _ in range(LOOKED_AT // MOST):
        part = await follow.read_page_of(conn, after, campaign_id, MOST)
        room = limit - len(found)
        if len(part.events) > room:
            last = part.events[room - 1]
            found += part.events[:room]
            return follow.Page(found, Checkpoint(last["block_no"], last["position"]), is_last=False)
        found += part.events
        after = part.checkpoint
        if part.is_last or len(found) == limit:
            return follow.Page(found, after, part.is_last)
    return follow.Page(found, after, is_last=False)


def _checkpoint(text: str | None, name: str) -> Checkpoint | None:
    with _of(name):
        return None if text is None else Checkpoint.decode(text)


@contextmanager
def _of(name: str) -> Iterator[None]:
    """What is wrong with a checkpoint is told of the field that it came in."""
    try:
        yield
    except DataError as error:
        raise Problem("invalid", f"{name}: {error}", field=name, remedy="leave it out to begin anew") from error


ROUTES = (
    Route(
        "GET",
        "/v1/events",
        page,
        "read",
        "The log, in its sealed order",
        query=EventsQuery,
        answer=EventPage,
        also=("audit",),
    ),
    Route(
        "GET",
        "/v1/events/stream",
        stream,
        "read",
        "The log and the progress of campaigns, live (Server-Sent Events)",
        query=StreamQuery,
        produces="text/event-stream",
        also=("audit",),
        problems=("unavailable",),
    ),
)
