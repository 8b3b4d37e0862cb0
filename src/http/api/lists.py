"""Lists of contacts: who wants a letter, and who does not want it any more."""

from __future__ import annotations

from datetime import datetime

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...ledger import address_book, contacts, limits
from ...ledger.public import Id
from ..effects import effect
from ..keys import POOL
from ..paging import Paging
from ..route import Route
from ..wire import answer, read_body, read_id, read_query
from .contacts import Changed, Contacts, NewContact, Person, by, page_of


@frozen
class NewList:
    """A list, by its name."""

    name: str = limits.text(200, example="digest")


@frozen
class List:
    """A list and how many are on it."""

    id: Id
    name: str
    created_at: datetime
    subscribed: int
    unsubscribed: int
    """Who has left, or said beforehand that they do not want to be on it: no import brings them back."""


@frozen
class Lists:
    """All lists, in one page: they are few."""

    items: list[List]
    next: None = None


async def list_(request: web.Request) -> web.Response:
    """By name."""
    async with request.app[POOL].connection() as conn:
        return answer(Lists([_shown(one) for one in await contacts.lists(conn)]))


async def create(request: web.Request) -> web.Response:
    """Nobody is on it yet."""
    asked = await read_body(request, NewList)

    async def act(conn: Connection) -> web.Response:
        made = await address_book.read_list(conn, await address_book.new_list(conn, asked.name))
        return answer(_shown(made), 201, headers={"Location": f"/v1/lists/{made.id}"})

    return await effect(request, act)


async def show(request: web.Request) -> web.Response:
    """With how many are on it."""
    async with request.app[POOL].connection() as conn:
        return answer(_shown(await address_book.read_list(conn, read_id(request))))


async def people(request: web.Request) -> web.Response:
    """In the order in which they became known."""
    asked, list_id = read_query(request, Paging), read_id(request)
    async with request.app[POOL].connection() as conn:
        await address_book.read_list(conn, list_id)
        page = await address_book.page(conn, after=asked.after_id(), limit=asked.limit, list_id=list_id)
    return answer(page_of(page.items, page.next))


async def subscribe(request: web.Request) -> web.Response:
    """Because the person said so: the only way back after they have left it. Refused for who is suppressed."""
    asked, list_id = await read_body(request, NewContact), read_id(request)

    async def act(conn: Connection) -> web.Response:
        await address_book.read_list(conn, list_id)
        changed = await contacts.subscribe(conn, asked.email, list_id, by(request))
        if asked.name is not None or asked.data is not None:
            await address_book.keep(conn, asked.email, asked.name, asked.data)
        return answer(Changed(changed))

    return await effect(request, act)


async def unsubscribe(request: web.Request) -> web.Response:
    """From this list alone. Who was never on it will not get on it by an import either."""
    asked, list_id = await read_body(request, Person), read_id(request)

    async def act(conn: Connection) -> web.Response:
        await address_book.read_list(conn, list_id)
        return answer(Changed(await contacts.unsubscribe(conn, asked.email, list_id, by(request))))

    return await effect(request, act)


def _shown(one: contacts.List) -> List:
    return List(Id(one.id), one.name, one.created_at, one.subscribed, one.unsubscribed)


ROUTES = (
    Route("GET", "/v1/lists", list_, "read", "All lists", answer=Lists),
    Route(
        *("POST", "/v1/lists", create, "send", "Make a list"),
        body=NewList,
        answer=List,
        status=201,
        idempotent=True,
        problems=("conflict",),
    ),
    Route("GET", "/v1/lists/{id}", show, "read", "One list", answer=List),
    Route("GET", "/v1/lists/{id}/contacts", people, "read", "Who is on a list", query=Paging, answer=Contacts),
    Route(
        *("POST", "/v1/lists/{id}/subscribe", subscribe, "send", "Put somebody on a list"),
        body=NewContact,
        answer=Changed,
        idempotent=True,
        problems=("conflict",),
    ),
    Route(
        *("POST", "/v1/lists/{id}/unsubscribe", unsubscribe, "send", "Take somebody off a list"),
        body=Person,
        answer=Changed,
        idempotent=True,
    ),
)
