"""Deliveries: how the mail to one person stands, and everything that happened to it."""

from __future__ import annotations

from aiohttp import web

from ...ledger.log_documents import Delivery, History, delivery_of
from ...projections.find import find_delivery
from ...projections.history import history as read_history
from ..keys import POOL
from ..route import Route
from ..wire import answer, read_id


async def read(request: web.Request) -> web.Response:
    """How a delivery stands, and what its last try came to."""
    async with request.app[POOL].connection() as conn:
        row = await find_delivery(conn, read_id(request))
    return answer(delivery_of(dict(row)))


async def history(request: web.Request) -> web.Response:
    """Every event of a delivery, in order."""
    async with request.app[POOL].connection() as conn:
        row = await find_delivery(conn, read_id(request))
        events = await read_history(conn, row["campaign_id"], row["delivery_id"])
    person = {"delivery_id": str(row["delivery_id"]), "key": row["key"], "email": row["email"]}
    campaign = {"id": str(row["campaign_id"]), "name": row["campaign"]}
    return answer({"campaign": campaign, "recipient": person, "items": events})


ROUTES = (
    Route("GET", "/v1/deliveries/{id}", read, "read", "How a delivery stands", answer=Delivery, also=("send", "audit")),
    Route(
        "GET",
        "/v1/deliveries/{id}/history",
        history,
        "read",
        "Everything that happened to a delivery",
        answer=History,
        also=("audit",),
    ),
)
