"""Whose mail somebody looks at before it leaves: a recipient of the campaign, or a person made up for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from attrs import evolve, field, frozen

from ..database import Blocks, Connection
from ..errors import ConflictError, NotFoundError

sql = Blocks("postledger.ledger", "samples.sql")


@frozen
class Sample:
    """A person as a mail is made for them; `attempt` counts the try that it would be."""

    delivery_id: int
    email: str = field(repr=False)
    name: str | None = field(repr=False)
    key: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    attempt: int = 1


async def recipient(conn: Connection, campaign_id: int, delivery_id: int | None) -> Sample | None:
    """One of the campaign's recipients, the first where none is named; None: it has nobody yet.

    Raises NotFoundError, and ConflictError for who was erased.
    """
    row = await (
        conn.fetchrow(sql.first, campaign_id)
        if delivery_id is None
        else conn.fetchrow(sql.by_id, campaign_id, delivery_id)
    )
    if row is None and delivery_id is not None:
        raise NotFoundError(f"campaign {campaign_id} has no delivery {delivery_id}")
    if row is None:
        return None
    if row["email"] is None or row["key"] is None:
        raise ConflictError("this person was erased: there is nothing left to make a mail of")
    return Sample(row["delivery_id"], row["email"], row["name"], row["key"], row["data"] or {}, row["attempt"] + 1)


async def made_up(conn: Connection, email: str, name: str | None, key: str | None, data: Mapping[str, Any]) -> Sample:
    """A person who is no recipient: the links in their mail lead to nobody."""
    return Sample(await conn.fetchval(sql.nobody), email, name, key or email, data)


async def nobody(conn: Connection, sample: Sample) -> Sample:
    """The same person under a number that is no recipient's."""
    return evolve(sample, delivery_id=await conn.fetchval(sql.nobody), attempt=1)


async def suppressed(conn: Connection, addresses: Collection[str]) -> frozenset[str]:
    """Which of these addresses, in normal form, nobody mails."""
    return frozenset(row["email"] for row in await conn.fetch(sql.suppressed, list(addresses)))
