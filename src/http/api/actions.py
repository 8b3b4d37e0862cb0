"""What is done to a campaign: schedule, start, pause, resume, cancel, retry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from aiohttp import web
from attrs import field, frozen

from ...database import Connection
from ...ledger import limits, operating, readiness, scheduling
from ...ledger.campaigns import Campaign as Row
from ...ledger.documents import Campaign
from ...ledger.public import Id
from ..conditions import if_match, locked
from ..effects import effect
from ..keys import SWEEPER
from ..route import Handler, Route
from ..wire import read_body, read_given, read_id
from .campaigns import shown

Do = Callable[[Connection, Row], Awaitable[object]]
"""Does it, to a campaign that this transaction has for itself."""

BIGGEST = 2**31


@frozen
class Schedule:
    """When a campaign begins by itself; `at` null: no more."""

    at: datetime | None
    missed: timedelta | None = None
    """A start that comes later than this is held; null: however late it is made up for. Left out, it stays."""
    expected_audience: int | None = limits.number(0, BIGGEST, default=None)
    """Refused where not so many people are written down."""


@frozen
class Start:
    """Begin now."""

    expected_audience: int | None = limits.number(0, BIGGEST, default=None)
    """Refused where not so many people are written down."""


@frozen
class Pause:
    """Stop for now."""

    until: datetime | None = None
    """It goes on by itself then; null: when somebody resumes it."""


@frozen
class Retry:
    """Whom to send to once more."""

    deliveries: tuple[Id, ...] | None = field(default=None)
    """Null: all that failed or whose outcome is unknown."""


@frozen
class Nothing:
    """There is nothing to say."""


async def schedule(request: web.Request) -> web.Response:
    """Lets a campaign begin by itself at a time, another time, or no more."""
    asked, given = await read_given(request, Schedule)

    async def do(conn: Connection, campaign: Row) -> None:
        if asked.expected_audience is not None:
            await readiness.check_audience(conn, campaign.id, asked.expected_audience)
        if "missed" in given:
            await scheduling.set_missed(conn, campaign.id, asked.missed)
        await scheduling.schedule(conn, campaign.id, asked.at)

    return await _acted(request, do)


async def start(request: web.Request) -> web.Response:
    """Begins now, whatever was scheduled."""
    asked = await read_body(request, Start)

    async def do(conn: Connection, campaign: Row) -> None:
        if asked.expected_audience is not None:
            await readiness.check_audience(conn, campaign.id, asked.expected_audience)
        await scheduling.start(conn, campaign.id)

    return await _acted(request, do)


async def pause(request: web.Request) -> web.Response:
    """Stops it: once this has answered, no mail begins on a permission older than a second."""
    asked = await read_body(request, Pause)
    return await _acted(request, lambda conn, campaign: scheduling.pause(conn, campaign.id, asked.until))


async def resume(request: web.Request) -> web.Response:
    """Goes on with a paused campaign."""
    await read_body(request, Nothing)
    return await _acted(request, lambda conn, campaign: operating.command(conn, campaign.id, "resume"))


async def cancel(request: web.Request) -> web.Response:
    """Ends a campaign for ever: whoever still waits gets nothing."""
    await read_body(request, Nothing)
    answer = await _acted(request, lambda conn, campaign: operating.command(conn, campaign.id, "cancel"))
    request.app[SWEEPER].sweep(read_id(request))
    return answer


async def retry(request: web.Request) -> web.Response:
    """Sends to failed and unknown ones once more, never to the suppressed."""
    asked = await read_body(request, Retry)
    return await _acted(request, lambda conn, campaign: operating.retry(conn, campaign.id, asked.deliveries))


async def _acted(request: web.Request, do: Do) -> web.Response:
    campaign_id, versions = read_id(request), if_match(request)

    async def act(conn: Connection) -> web.Response:
        await do(conn, await locked(conn, campaign_id, versions))
        return await shown(conn, campaign_id)

    return await effect(request, act)


def _route(handler: Handler, name: str, summary: str, body: type) -> Route:
    return Route(
        "POST",
        f"/v1/campaigns/{{id}}/{name}",
        handler,
        "send",
        summary,
        body=body,
        answer=Campaign,
        idempotent=True,
        if_match="optional",
        problems=("conflict",),
    )


ROUTES = (
    _route(schedule, "schedule", "Let it begin at a time", Schedule),
    _route(start, "start", "Begin now", Start),
    _route(pause, "pause", "Stop for now", Pause),
    _route(resume, "resume", "Go on", Nothing),
    _route(cancel, "cancel", "End it for ever", Nothing),
    _route(retry, "retry", "Send to failed ones once more", Retry),
)
