"""What was true of a campaign at a sealed moment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from attrs import frozen

from ..database import Blocks, Connection, fetch_one
from ..events.machines import DeliveryStatus

sql = Blocks("postledger.projections", "as_of.sql")


@frozen
class AsOf:
    """The last block sealed by then, and how many deliveries were in each state; None: nothing had been sealed yet."""

    block_no: int | None
    sealed_at: datetime | None
    counts: Mapping[str, int]


async def as_of(conn: Connection, campaign_id: int, at: datetime) -> AsOf:
    """The fold of the blocks that were sealed by `at`: the same answer for ever, once a later block is there."""
    block_no, sealed_at, counted = await fetch_one(conn, sql.as_of, campaign_id, at)
    return AsOf(block_no, sealed_at, {status.value: counted.get(status, 0) for status in DeliveryStatus})
