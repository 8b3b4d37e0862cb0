"""Campaigns: what there is of them, and what is done to them."""

from __future__ import annotations

from aiohttp import web
from attrs import frozen

from ...ledger import pages
from ...ledger.documents import campaign_document
from ..keys import POOL
from ..route import Route
from ..wire import answer, read_id, read_query


@frozen
class Paging:
    """Which part of a list."""

    after: str | None = None
    """`next` of the page before."""
    limit: int = 100


async def list_(request: web.Request) -> web.Response:
    """All campaigns, newest first."""
    asked = read_query(request, Paging)
    async with request.app[POOL].connection() as conn:
        page = await pages.campaign_ids(conn, after=asked.after, limit=asked.limit)
        items = [await campaign_document(conn, campaign_id) for campaign_id in page.items]
    return answer({"items": items, "next": page.next})


async def show(request: web.Request) -> web.Response:
    """One campaign."""
    async with request.app[POOL].connection() as conn:
        shown = await campaign_document(conn, read_id(request))
    return answer(shown, headers={"ETag": f'"{shown["version"]}"'})


ROUTES = (
    Route("GET", "/v1/campaigns", list_, "read", "All campaigns, newest first", query=Paging, also=("send",)),
    Route("GET", "/v1/campaigns/{id}", show, "read", "One campaign", also=("send",)),
)
