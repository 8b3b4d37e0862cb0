"""Suppressions: addresses that nobody mails, added, listed by their hash, lifted with a reason."""

from __future__ import annotations

from datetime import datetime

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...errors import NotFoundError
from ...ledger import limits, suppressions
from ...ledger.public import Id
from ..effects import effect
from ..keys import POOL
from ..paging import Paging
from ..problems import Problem
from ..route import Route
from ..wire import answer, read_body, read_query
from .contacts import Person, by

HASH = "^[0-9a-f]{64}$"


@frozen
class NewSuppression:
    """An address that nobody is to mail any more. It is not kept: only a keyed hash of it."""

    email: str = limits.email(repr=False)
    reason: str = limits.text(100, example="asked by phone", also=limits.check_no_address, default="operator")
    """Kept in the log for ever: no names, no addresses."""


@frozen
class Lifting:
    """Which suppression ends, by the address or by its hash, and why."""

    reason: str = limits.text(100, example="asked to be written to again", also=limits.check_no_address)
    """Kept in the log for ever: no names, no addresses."""
    email: str | None = limits.email(default=None, repr=False)
    address_hash: str | None = limits.limited(limits.check_hash, schema={"pattern": HASH}, default=None)


@frozen
class Suppression:
    """An address that nobody mails."""

    address_hash: str
    """Keyed, so that it says nothing to who has no address to compare it with."""
    contact_id: Id
    reason: str
    source: str
    """Who said so: operator, api:KEY, or the delivery that it came of."""
    created_at: datetime


@frozen
class Suppressions:
    """A page of suppressions, without addresses: there are none here."""

    items: list[Suppression]
    next: str | None


@frozen
class Lifted:
    """The address may be mailed again. Lists that the person has left stay left."""

    address_hash: str


async def list_(request: web.Request) -> web.Response:
    """In the order of the hashes."""
    asked = read_query(request, Paging)
    async with request.app[POOL].connection() as conn:
        page = await suppressions.page(conn, after=asked.after_hash(), limit=asked.limit)
    return answer(Suppressions([_shown(one) for one in page.items], page.next))


async def add(request: web.Request) -> web.Response:
    """From now on nobody mails it, what waits included. A reason that stands there already stays."""
    asked = await read_body(request, NewSuppression)

    async def act(conn: Connection) -> web.Response:
        kept, _ = await suppressions.add(conn, asked.email, asked.reason, by(request))
        return answer(_shown(kept), 201)

    return await effect(request, act)


async def look_up(request: web.Request) -> web.Response:
    """Whether an address is suppressed, and why; a POST, since it is not to stand in a URL."""
    asked = await read_body(request, Person)
    async with request.app[POOL].connection() as conn:
        found = await suppressions.find(conn, await suppressions.hash_of(conn, asked.email))
    if found is None:
        raise NotFoundError("this address is not suppressed")
    return answer(_shown(found))


async def lift(request: web.Request) -> web.Response:
    """The address may be mailed again; the log says by whose key and why."""
    asked = await read_body(request, Lifting)
    if (asked.email is None) == (asked.address_hash is None):
        raise Problem("invalid", "which one? one of email and address_hash", field="email", remedy="give one of them")

    async def act(conn: Connection) -> web.Response:
        known = asked.address_hash or await suppressions.hash_of(conn, asked.email or "")
        await suppressions.lift(conn, known, asked.reason, by(request))
        return answer(Lifted(known))

    return await effect(request, act)


def _shown(one: suppressions.Suppression) -> Suppression:
    return Suppression(one.address_hash, Id(one.contact_id), one.reason, one.source, one.created_at)


ROUTES = (
    Route(
        *("GET", "/v1/suppressions", list_, "read", "All suppressions, without addresses"),
        query=Paging,
        answer=Suppressions,
        also=("audit",),
    ),
    Route(
        *("POST", "/v1/suppressions", add, "send", "Mail an address no more"),
        body=NewSuppression,
        answer=Suppression,
        status=201,
        idempotent=True,
    ),
    Route(
        *("POST", "/v1/suppressions/lookup", look_up, "read", "Ask whether an address is suppressed"),
        body=Person,
        answer=Suppression,
        also=("audit", "send"),
        problems=("not-found",),
    ),
    Route(
        *("POST", "/v1/suppressions/lift", lift, "admin", "Let an address be mailed again"),
        body=Lifting,
        answer=Lifted,
        idempotent=True,
        problems=("not-found",),
    ),
)
