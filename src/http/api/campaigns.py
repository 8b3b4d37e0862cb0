"""Campaigns: written down, listed, read, changed before they begin."""

from __future__ import annotations

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...errors import ConflictError, DataError
from ...ledger import drafting, limits, pages, scheduling
from ...ledger.campaigns import Campaign as Row
from ...ledger.campaigns import Settings, Source
from ...ledger.documents import Campaign, show
from ..conditions import etag, if_match, locked
from ..effects import effect
from ..keys import CONFIG, POOL
from ..problems import Problem
from ..route import Route
from ..wire import answer, read_given, read_id, read_query
from .drafts import Changes, NewCampaign, settings_of, source_of


@frozen
class Paging:
    """Which part of a list."""

    after: str | None = limits.cursor()
    """`next` of the page before."""
    limit: int = limits.page_size(20, 200)


@frozen
class Campaigns:
    """A page of campaigns, newest first; `next` is null on the last."""

    items: tuple[Campaign, ...]
    next: str | None


async def list_(request: web.Request) -> web.Response:
    """All campaigns, newest first."""
    asked = read_query(request, Paging)
    async with request.app[POOL].connection() as conn:
        page = await pages.campaign_ids(conn, after=asked.after, limit=asked.limit)
        items = [await show(conn, campaign_id) for campaign_id in page.items]
    return answer(Campaigns(tuple(items), page.next))


async def read(request: web.Request) -> web.Response:
    """One campaign: what it is, how it stands, and its counts."""
    async with request.app[POOL].connection() as conn:
        return await shown(conn, read_id(request))


async def create(request: web.Request) -> web.Response:
    """Writes a campaign down: a draft, or scheduled where `at` says when it begins."""
    asked, given = await read_given(request, NewCampaign)

    async def act(conn: Connection) -> web.Response:
        base = Settings(asked.name.strip(), "", kind=asked.kind)
        settings = await settings_of(conn, asked, given, base)
        source = await source_of(conn, asked, given, None)
        check_letter(request, settings, source)
        campaign_id = await _drafted(conn, settings, source)
        if asked.at is not None:
            await _schedule(conn, await drafting.lock(conn, campaign_id), asked)
        return await shown(conn, campaign_id, status=201, Location=f"/v1/campaigns/{campaign_id}")

    return await effect(request, act)


async def change(request: web.Request) -> web.Response:
    """Changes a draft; a campaign that is scheduled has to be taken back first."""
    campaign_id, versions = read_id(request), if_match(request, required=True)
    asked, given = await read_given(request, Changes)

    async def act(conn: Connection) -> web.Response:
        old = await locked(conn, campaign_id, versions)
        settings = await settings_of(conn, asked, given, old.settings)
        source = await source_of(conn, asked, given, old.source)
        check_letter(request, settings, source)
        await drafting.change(conn, old, settings, source)
        return await shown(conn, campaign_id)

    return await effect(request, act)


async def shown(conn: Connection, campaign_id: int, *, status: int = 200, **headers: str) -> web.Response:
    """The answer that shows a campaign, with its ETag."""
    found = await show(conn, campaign_id)
    return answer(found, status, headers={"ETag": etag(found.version), **headers})


def check_letter(request: web.Request, settings: Settings, source: Source) -> None:
    """Raises Problem, with all that is wrong with the letter."""
    url = request.app[CONFIG].url
    if settings.track and url is None:
        raise Problem(
            "invalid",
            "track: there is no public address that the links could lead to",
            field="track",
            remedy="start the service with POSTLEDGER_URL, or leave it out",
        )
    try:
        drafting.check_letter(settings, source, url)
    except drafting.LetterError as error:
        first, *_ = error.problems
        errors = [{"field": one.field, "detail": one.reason, "remedy": one.remedy} for one in error.problems]
        raise Problem(
            "invalid", f"{first.field}: {first.reason}", field=first.field, remedy=first.remedy, errors=errors
        ) from error


async def _drafted(conn: Connection, settings: Settings, source: Source) -> int:
    try:
        return await drafting.create(conn, settings, source)
    except ConflictError as error:
        raise Problem("conflict", str(error), field="name", remedy="choose another name") from error


async def _schedule(conn: Connection, campaign: Row, asked: NewCampaign) -> None:
    try:
        await scheduling.reschedule(conn, campaign, asked.at)
    except DataError as error:
        raise Problem("invalid", f"at: {error}", field="at", remedy="give a moment to come") from error


ROUTES = (
    Route("GET", "/v1/campaigns", list_, "read", "List campaigns", query=Paging, answer=Campaigns, also=("send",)),
    Route(
        "POST",
        "/v1/campaigns",
        create,
        "send",
        "Write a campaign down",
        body=NewCampaign,
        answer=Campaign,
        status=201,
        idempotent=True,
        problems=("conflict",),
    ),
    Route("GET", "/v1/campaigns/{id}", read, "read", "Read a campaign", answer=Campaign, also=("send",)),
    Route(
        "PATCH",
        "/v1/campaigns/{id}",
        change,
        "send",
        "Change a draft",
        body=Changes,
        answer=Campaign,
        if_match="required",
        problems=("conflict",),
    ),
)
