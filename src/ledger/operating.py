"""What an operator does to campaigns and addresses: resume, cancel, retry, suppress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal, TypeAlias
from uuid import uuid4

import asyncpg
from attrs import frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import ConflictError
from ..messages.addresses import normalise
from . import campaigns, queue

sql = Blocks("postledger.ledger", "operating.sql")

Command: TypeAlias = Literal["resume", "cancel"]

OPERATOR = "operator"

_EVENTS: dict[Command, str] = {"resume": "Resumed", "cancel": "Cancelled"}
# A campaign that is so already needs no event.
_WISHED: dict[Command, str] = {"resume": "sending", "cancel": "cancelled"}

SWEEP = 1000
"""Waiting rows of a cancelled campaign that one call turns into cancelled ones."""

BUSY_AGAIN = 0.05


@frozen
class Suppression:
    """An address that nobody mails, by its hash, and why."""

    address_hash: bytes
    reason: str


async def command(conn: Connection, campaign_id: int, wish: Command) -> bool:
    """Brings the campaign there; False where it was there already. Raises ConflictError where it cannot go there.

    When this has answered no provider call begins on an older permission, but what is under way ends.
    """
    event = _EVENTS[wish]
    while (campaign := await campaigns.read(conn, campaign_id)).status != _WISHED[wish]:
        try:
            await campaigns.change(conn, campaign_id, event, expected=campaign.version)
        except asyncpg.PostgresError as error:
            if error.sqlstate == "PL005":
                continue  # it has changed since we looked
            if error.sqlstate != "PL004":
                raise
            raise ConflictError(
                f'campaign "{campaign.settings.name}" is {campaign.status}: it cannot be {event.lower()}'
            ) from error
        return True
    return False


async def open_generations(conn: Connection, generations: Sequence[int]) -> list[int]:
    """Which of these campaigns have not ended, or have rows to be swept, in the same order."""
    return [row["id"] for row in await conn.fetch(sql.open_generations, list(generations))]


async def sweep(conn: Connection, campaign_id: int) -> int:
    """Ends what waits in a cancelled campaign, where no worker does it; how many that were."""
    worker = await conn.fetchval(queue.sql.enlist, "sweep")
    swept = 0
    try:
        while not await conn.fetchval(campaigns.sql.finish, campaign_id):
            found = await conn.fetchval(campaigns.sql.sweep_cancelled, campaign_id, uuid4(), worker, SWEEP)
            swept += found
            if not found and (await campaigns.counts(conn, campaign_id))["pending"] == 0:
                break  # what is left is under way elsewhere; its worker ends it
            if not found:
                await asyncio.sleep(BUSY_AGAIN)
    finally:
        if not conn.is_closed():
            await conn.execute(queue.sql.leave, worker)
    return swept


async def retry(conn: Connection, campaign_id: int, deliveries: Sequence[int] | None) -> int:
    """Sends the failed and unknown ones round again, never the suppressed; how many. Raises PL002 in other states."""
    requeued: int = await conn.fetchval(campaigns.sql.requeue, campaign_id, deliveries, "retry", OPERATOR)
    return requeued


async def suppress(conn: Connection, address: str, reason: str) -> Suppression:
    """From now on nobody mails this address; a reason that stands there already stays. Raises InvalidAddress."""
    async with conn.transaction():
        address_hash, _ = await fetch_one(conn, campaigns.sql.suppress, normalise(address).full, reason, OPERATOR)
        kept: str = await conn.fetchval(sql.suppressed_for, address_hash)
    return Suppression(address_hash, kept)
