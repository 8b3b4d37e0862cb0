"""What an auditor asks: everything again in order, how it was at a time, whether the tables say the same as the log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any, cast

import orjson
from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...errors import UsageError
from ...events.fold import ReplayError
from ...ledger import campaigns, limits
from ...ledger.documents import Counts
from ...ledger.log_documents import AsOf, CampaignName, History, Verification
from ...ledger.public import Id
from ...projections.as_of import as_of as read_as_of
from ...projections.find import FoundCampaign, find_campaign, find_recipient
from ...projections.history import history as read_history
from ...projections.records import UnreadableEvent
from ...projections.replay import replay as read_replay
from ...projections.verify import verify as compare
from ..keys import DATABASE
from ..problems import AGAIN_IN, Problem
from ..route import Route
from ..streaming import NDJSON, stream_out
from ..wire import answer, read_body, read_id, read_query

AT_ONCE = 3
"""Audits at a time. Each has a connection and a snapshot for as long as it takes, which may be minutes."""

PIECE = 200
"""Lines of a replay that are written together."""

AUDITS: web.AppKey[asyncio.Semaphore] = web.AppKey("audits", asyncio.Semaphore)


@frozen
class At:
    """Which moment."""

    at: datetime
    """An instant with its offset or Z, or with an IANA zone."""


@frozen
class Whose:
    """Whose history: in a body, since no address belongs into a URL."""

    campaign: str = limits.text(200, example="spring news")
    """Its name or id; by a name, all generations of a standing one are looked through."""
    recipient: str = limits.text(320, example="ann@example.com")
    """A key, an address or a delivery id."""


async def replay(request: web.Request) -> web.StreamResponse:
    """Every event of a campaign with the state after it, in sealed order: a line each of {event, state}.

    What is in no block yet comes last, with `block` null. A line {problem} ends it where an event cannot stand.
    """
    campaign_id = read_id(request)
    async with _auditing(request) as conn:
        await campaigns.check_there(conn, campaign_id)
        return await stream_out(request, _steps(conn, campaign_id), NDJSON)


async def _steps(conn: Connection, campaign_id: int) -> AsyncGenerator[bytes, None]:
    steps = cast("AsyncGenerator[tuple[dict[str, Any], dict[str, Any]]]", read_replay(conn, campaign_id))
    lines: list[bytes] = []
    async with aclosing(steps):
        try:
            async for event, state in steps:
                lines.append(orjson.dumps({"event": event, "state": state}) + b"\n")
                if len(lines) == PIECE:
                    yield b"".join(lines)
                    lines.clear()
        except (ReplayError, UnreadableEvent) as error:
            found = Problem("conflict", str(error), remedy="verify lists all that is wrong")
            lines.append(orjson.dumps({"problem": found.document()}) + b"\n")
    yield b"".join(lines)


async def as_of(request: web.Request) -> web.Response:
    """How many recipients were in each state at a time, by the last block that had been sealed then."""
    campaign_id, asked = read_id(request), read_query(request, At)
    async with _auditing(request) as conn:
        name = await campaigns.name_of(conn, campaign_id)
        then = await read_as_of(conn, campaign_id, asked.at)
    block = None if then.block_no is None else Id(then.block_no)
    named, counts = CampaignName(Id(campaign_id), name), Counts(**then.counts)
    return answer(AsOf(named, asked.at, block, then.sealed_at, counts, then.final, then.unsealed))


async def verify(request: web.Request) -> web.Response:
    """Compares a campaign's tables with the fold of the log, while traffic runs."""
    async with _auditing(request) as conn:
        return answer((await compare(conn, read_id(request))).as_json())


async def verify_all(request: web.Request) -> web.Response:
    """Compares all campaigns, contacts and the system's own log."""
    async with _auditing(request) as conn:
        return answer((await compare(conn, None)).as_json())


async def history(request: web.Request) -> web.Response:
    """Everything that happened to one recipient, in order, whatever you know them by."""
    asked = await read_body(request, Whose)
    async with _auditing(request) as conn:
        campaign = await find_campaign(conn, asked.campaign)
        who = await _recipient(conn, campaign, asked.recipient)
        events = await read_history(conn, who.campaign_id, who.delivery_id)
    person = {"delivery_id": str(who.delivery_id), "key": who.key, "email": who.email}
    return answer(
        {"campaign": {"id": str(who.campaign_id), "name": campaign.name}, "recipient": person, "items": events}
    )


async def _recipient(conn: Connection, campaign: FoundCampaign, word: str) -> Any:
    try:
        return await find_recipient(conn, campaign, word)
    except UsageError as error:
        raise Problem("invalid", str(error), field="recipient", remedy="give the delivery id") from error


@asynccontextmanager
async def _auditing(request: web.Request) -> AsyncIterator[Connection]:
    turn = request.app[AUDITS]
    if turn.locked():
        raise Problem(
            "too-many-requests",
            f"{AT_ONCE} audits are under way",
            remedy="wait for one to end",
            headers={"Retry-After": AGAIN_IN},
        )
    async with turn, request.app[DATABASE].connection(label="audit") as conn:
        yield conn


async def auditing(app: web.Application) -> AsyncIterator[None]:
    """What audits share."""
    app[AUDITS] = asyncio.Semaphore(AT_ONCE)
    yield


ROUTES = (
    Route(
        "GET",
        "/v1/audit/campaigns/{id}/replay",
        replay,
        "audit",
        "Every event of a campaign, with the state after it",
        produces=NDJSON,
        problems=("too-many-requests",),
    ),
    Route(
        "GET",
        "/v1/audit/campaigns/{id}/as-of",
        as_of,
        "audit",
        "How a campaign stood at a time",
        query=At,
        answer=AsOf,
        problems=("too-many-requests",),
    ),
    Route(
        "GET",
        "/v1/audit/campaigns/{id}/verify",
        verify,
        "audit",
        "Compare a campaign with the log",
        answer=Verification,
        problems=("too-many-requests",),
    ),
    Route(
        "GET",
        "/v1/audit/verify",
        verify_all,
        "audit",
        "Compare everything with the log",
        answer=Verification,
        problems=("too-many-requests",),
    ),
    Route(
        "POST",
        "/v1/audit/history",
        history,
        "audit",
        "Everything that happened to a recipient",
        body=Whose,
        answer=History,
        problems=("too-many-requests", "not-found"),
    ),
)
