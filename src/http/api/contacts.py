"""Contacts: people by their address, with what is known of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...ledger import address_book, contacts, limits
from ...ledger.public import Id
from ..effects import effect
from ..keys import CALLER, POOL
from ..paging import Paging
from ..route import Route
from ..wire import answer, read_body, read_id, read_query


@frozen
class Person:
    """A person by their address: never in a URL, which others log."""

    email: str = limits.email(repr=False)


@frozen
class NewContact:
    """A person, and what letters may say of them; what is given replaces what was known."""

    email: str = limits.email(repr=False)
    name: str | None = limits.text(998, least=0, example="Ann", default=None, repr=False)
    data: dict[str, Any] | None = limits.data(default=None)


@frozen
class ContactSummary:
    """A contact in a list."""

    id: Id
    address_hash: str
    """By what the address is known where it must outlive the person's data."""
    email: str | None
    """Null where nobody told us, or the person was erased."""
    name: str | None
    data: dict[str, Any] | None
    created_at: datetime
    erased_at: datetime | None
    suppressed: str | None
    """Why nobody mails this address; null: everybody may."""


@frozen
class OnList:
    """A list that somebody is on, or has left."""

    list_id: Id
    name: str
    subscribed: bool
    changed_at: datetime


@frozen
class Contact(ContactSummary):
    """A contact, with the lists they are on or have left."""

    lists: list[OnList]


@frozen
class Contacts:
    """A page of contacts."""

    items: list[ContactSummary]
    next: str | None


@frozen
class Changed:
    """Whether that was news."""

    changed: bool


async def list_(request: web.Request) -> web.Response:
    """In the order in which they became known."""
    asked = read_query(request, Paging)
    async with request.app[POOL].connection() as conn:
        page = await address_book.page(conn, after=asked.after_id(), limit=asked.limit)
    return answer(page_of(page.items, page.next))


async def show(request: web.Request) -> web.Response:
    """With the lists that they are on or have left."""
    async with request.app[POOL].connection() as conn:
        return answer(await contact_of(conn, read_id(request)))


async def look_up(request: web.Request) -> web.Response:
    """A POST, since the address is not to stand in a URL."""
    asked = await read_body(request, Person)
    async with request.app[POOL].connection() as conn:
        return answer(await contact_of(conn, await address_book.find(conn, asked.email)))


async def keep(request: web.Request) -> web.Response:
    """Made where the address is new; it is on no list by that, and whoever was suppressed stays so."""
    asked = await read_body(request, NewContact)

    async def act(conn: Connection) -> web.Response:
        return answer(await contact_of(conn, await address_book.keep(conn, asked.email, asked.name, asked.data)))

    return await effect(request, act)


async def unsubscribe(request: web.Request) -> web.Response:
    """Off all lists and suppressed: nothing is sent to them any more, from any campaign, what waits included."""
    asked = await read_body(request, Person)

    async def act(conn: Connection) -> web.Response:
        return answer(Changed(await contacts.unsubscribe(conn, asked.email, None, by(request))))

    return await effect(request, act)


async def contact_of(conn: Connection, contact_id: int) -> Contact:
    """Raises NotFoundError."""
    known = await address_book.read(conn, contact_id)
    lists = [
        OnList(Id(one.list_id), one.name, one.subscribed, one.changed_at)
        for one in await address_book.subscriptions(conn, contact_id)
    ]
    return Contact(**_fields(known), lists=lists)


def page_of(items: Any, following: str | None) -> Contacts:
    """A page as it is shown."""
    return Contacts([ContactSummary(**_fields(one)) for one in items], following)


def by(request: web.Request) -> str:
    """Who said so, as events have it: the key's number."""
    return f"api:{request[CALLER].key_id}"


def _fields(known: address_book.Contact) -> dict[str, Any]:
    return {
        "id": Id(known.id),
        "address_hash": known.address_hash,
        "email": known.email,
        "name": known.name,
        "data": None if known.data is None else dict(known.data),
        "created_at": known.created_at,
        "erased_at": known.erased_at,
        "suppressed": known.suppressed,
    }


ROUTES = (
    Route("GET", "/v1/contacts", list_, "read", "All contacts", query=Paging, answer=Contacts),
    Route(
        *("POST", "/v1/contacts", keep, "send", "Keep what is known of a person"),
        body=NewContact,
        answer=Contact,
        idempotent=True,
        problems=("conflict",),
    ),
    Route(
        *("POST", "/v1/contacts/lookup", look_up, "read", "Find a contact by address"),
        body=Person,
        answer=Contact,
        problems=("not-found",),
    ),
    Route(
        *("POST", "/v1/contacts/unsubscribe", unsubscribe, "send", "Take somebody off everything"),
        body=Person,
        answer=Changed,
        idempotent=True,
    ),
    Route("GET", "/v1/contacts/{id:[0-9]+}", show, "read", "One contact", answer=Contact),
)
