"""Single messages: one mail to one person, through a standing campaign."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from aiohttp import web
from attrs import frozen

from ...ledger import limits
from ...ledger.messages import Message
from ..effects import asked_by
from ..mailroom import MAILROOM, Accepted
from ..route import Route
from ..wire import read_body

__all__ = ["ROUTES", "Accepted", "NewMessage"]


@frozen
class NewMessage:
    """One mail to one person, through a standing campaign, as enqueue() takes it in SQL."""

    campaign: str = limits.text(200, example="welcome")
    """The name of a standing campaign, or its id."""
    email: str = limits.email(repr=False)
    key: str | None = limits.text(200, lines=True, example="order-1001", default=None, repr=False)
    """A key is written once in a campaign: the same again sends nothing, and answers the first delivery."""
    name: str | None = limits.text(998, least=0, example="Ann", default=None, repr=False)
    data: dict[str, Any] = limits.data(factory=dict)
    """The letter's variables."""
    due_at: datetime | None = None
    """When it is to be sent; without it, or in the past: now."""


async def send(request: web.Request) -> web.Response:
    """Writes the message down and answers its delivery; workers are woken when that is committed."""
    asked = await read_body(request, NewMessage)
    message = Message(asked.campaign, asked.email, asked.key, asked.name, asked.data, asked.due_at)
    return await request.app[MAILROOM].take(message, await asked_by(request))


ROUTES = (
    Route(
        *("POST", "/v1/messages", send, "send", "Send one message"),
        body=NewMessage,
        answer=Accepted,
        status=202,
        idempotent=True,
        problems=("not-found", "conflict"),
    ),
)
