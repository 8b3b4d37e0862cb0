"""Contacts one by one: what is known of a person, the lists they are on or have left, whether anybody may mail them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from attrs import field, frozen

from ..database import Blocks, Connection
from ..errors import ConflictError, NotFoundError
from ..messages.addresses import normalise
from .contacts import List
from .pages import Page

sql = Blocks("postledger.ledger", "address_book.sql")


@frozen
class Subscription:
    """A list that somebody is on, or has left and will not be put on again by an import."""

    list_id: int
    name: str
    subscribed: bool
    changed_at: datetime


@frozen
class Contact:
    """`email`, `name` and `data` are None where nobody told us, or the person was erased; the hash outlives them."""

    id: int
    address_hash: str
    email: str | None = field(repr=False)
    name: str | None = field(repr=False)
    data: Mapping[str, Any] | None = field(repr=False)
    created_at: datetime
    erased_at: datetime | None
    suppressed: str | None
    """Why nobody mails this address; None: everybody may."""


async def page(conn: Connection, *, after: int, limit: int, list_id: int | None = None) -> Page:
    """Contacts above the id `after`, all of them or those who are on one list."""
    if list_id is None:
        rows = await conn.fetch(sql.page, after, limit + 1)
    else:
        rows = await conn.fetch(sql.page_of_list, after, limit + 1, list_id)
    found = [Contact(**row) for row in rows[:limit]]
    return Page(found, str(found[-1].id) if len(rows) > limit else None)


async def read(conn: Connection, contact_id: int) -> Contact:
    """Raises NotFoundError."""
    row = await conn.fetchrow(sql.by_id, contact_id)
    if row is None:
        raise NotFoundError(f"no contact has the id {contact_id}")
    return Contact(**row)


async def find(conn: Connection, address: str) -> int:
    """The id of the contact with this address. Raises InvalidAddress, and NotFoundError in words without it."""
    found: int | None = await conn.fetchval(sql.find, normalise(address).full)
    if found is None:
        raise NotFoundError("no contact has this address")
    return found


async def subscriptions(conn: Connection, contact_id: int) -> Sequence[Subscription]:
    """By the name of the list."""
    return [Subscription(**row) for row in await conn.fetch(sql.subscriptions, contact_id)]


async def keep(conn: Connection, address: str, name: str | None, data: Mapping[str, Any] | None) -> int:
    """The id of the contact, made where it is new; name and data replace what was known unless they are None.

    Raises InvalidAddress, and ConflictError for who was erased.
    """
    normal = normalise(address).full
    async with conn.transaction():
        contact_id: int = await conn.fetchval(sql.contact_of, normal)
        if await conn.execute(sql.describe, contact_id, normal, name, data) == "UPDATE 0":
            raise ConflictError("this person was erased: nothing is kept about them any more")
    return contact_id


async def read_list(conn: Connection, list_id: int) -> List:
    """Raises NotFoundError."""
    row = await conn.fetchrow(sql.list_by_id, list_id)
    if row is None:
        raise NotFoundError(f"no list has the id {list_id}")
    return List(**row)


async def new_list(conn: Connection, name: str) -> int:
    """The id of the new list. Raises ConflictError where there is one of this name."""
    found: int | None = await conn.fetchval(sql.new_list, name)
    if found is None:
        raise ConflictError(f"there is a list called {name!r} already")
    return found
