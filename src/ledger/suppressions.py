"""Suppressions as an operator sees them: added, listed without addresses, lifted with a reason."""

from __future__ import annotations

from datetime import datetime

from attrs import frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError
from ..messages.addresses import normalise
from .pages import Page

sql = Blocks("postledger.ledger", "suppressions.sql")


@frozen
class Suppression:
    """An address that nobody mails, by its keyed hash: who has the address can ask by it, and nobody reads it here."""

    address_hash: str
    contact_id: int
    reason: str
    source: str
    created_at: datetime


async def page(conn: Connection, *, after: str, limit: int) -> Page:
    """Those whose hash comes after this one (hex; empty: from the beginning)."""
    rows = await conn.fetch(sql.page, after, limit + 1)
    found = [Suppression(**row) for row in rows[:limit]]
    return Page(found, found[-1].address_hash if len(rows) > limit else None)


async def hash_of(conn: Connection, address: str) -> str:
    """By what an address is known here, in hex. Raises InvalidAddress."""
    found: str = await conn.fetchval(sql.hash_of, normalise(address).full)
    return found


async def find(conn: Connection, address_hash: str) -> Suppression | None:
    """That of one address, by the hex of its hash."""
    row = await conn.fetchrow(sql.by_hash, address_hash)
    return None if row is None else Suppression(**row)


async def add(conn: Connection, address: str, reason: str, by: str) -> tuple[Suppression, bool]:
    """From now on nobody mails this address, and whether that is new; a reason that stands there already stays.

    Raises InvalidAddress.
    """
    normal = normalise(address).full
    async with conn.transaction():
        added: bool = await conn.fetchval(sql.suppress, normal, reason, by)
        kept = await find(conn, await hash_of(conn, normal))
    if kept is None:
        raise NotFoundError("the suppression was lifted at the same moment: add it again")
    return kept, added


async def lift(conn: Connection, address_hash: str, reason: str, by: str) -> None:
    """The address may be mailed again; lists that the person has left stay left. Raises NotFoundError."""
    if not await conn.fetchval(sql.lift, address_hash, by, reason):
        raise NotFoundError("no suppression has this address_hash: GET /v1/suppressions lists them all")
