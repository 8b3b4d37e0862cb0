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
    """The last block sealed by then, and how many deliveries were in each state; None: nothing had been sealed yet.

    `final`: a later block is there, so the answer will never be another. Until then `unsealed` events of the campaign,
    which are in no block yet, may come to it. `ahead`: that time is still to come.
    """

    block_no: int | None
    sealed_at: datetime | None
    counts: Mapping[str, int]
    final: bool
    unsealed: int
    ahead: bool


async def as_of(conn: Connection, campaign_id: int, at: datetime) -> AsOf:
    """The fold of the blocks that were sealed by `at`, by the database's clock."""
    row = await fetch_one(conn, sql.as_of, campaign_id, at)
    counts = {status.value: row["counts"].get(status, 0) for status in DeliveryStatus}
    unsealed = 0 if row["final"] else row["unsealed"]
    return AsOf(row["block_no"], row["sealed_at"], counts, row["final"], unsealed, row["ahead"])
