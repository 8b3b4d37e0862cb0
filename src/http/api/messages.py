"""Single messages: one mail to one person, through a standing campaign."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import asyncpg
from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...ledger import limits, messages
from ...ledger.messages import Message
from ...ledger.public import Id
from ..effects import effect
from ..problems import Problem
from ..route import Route
from ..waking import WAKER
from ..wire import answer, read_body


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


@frozen
class Accepted:
    """The message is written down: it will be sent, or its history says why not."""

    delivery_id: Id
    new: bool
    """False: this key was written before, and `delivery_id` is that message's."""


async def send(request: web.Request) -> web.Response:
    """Writes the message down and answers its delivery; workers are woken when that is committed."""
    asked = await read_body(request, NewMessage)
    message = Message(asked.campaign, asked.email, asked.key, asked.name, asked.data, asked.due_at)

    async def act(conn: Connection) -> web.Response:
        try:
            delivery_id, new = await messages.enqueue(conn, message)
        except asyncpg.PostgresError as error:
            if error.sqlstate != "PL003":
                raise
            raise unacceptable(error) from None
        return answer(Accepted(Id(delivery_id), new), 202)

    response = await effect(request, act)
    request.app[WAKER].note()
    return response


def unacceptable(error: asyncpg.PostgresError) -> Problem:
    """What SQL has against a message, of which its column says the field."""
    return Problem("invalid", str(error).splitlines()[0], field=error.column_name)


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
