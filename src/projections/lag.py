"""How far the sealed log is behind what was committed, and its followers behind it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from attrs import frozen

from ..database import Blocks, Connection, fetch_one

sql = Blocks("postledger.projections", "lag.sql")


@frozen
class Lag:
    """At one moment. Nothing decides by these: what is in no block yet has no time by which it must be.

    `unsealed` events are committed and in no block; the oldest was written `oldest_in` ago, None where there are none.
    `behind`: for each follower, how many blocks it has not read to the end.
    """

    block_no: int | None
    sealed_at: datetime | None
    unsealed: int
    oldest_in: timedelta | None
    behind: Mapping[str, int]


async def read_lag(conn: Connection) -> Lag:
    """Costs what is unsealed, and the unfinished part of transactions that were open at the newest block."""
    block_no, sealed_at, unsealed, oldest_in = await fetch_one(conn, sql.sealing)
    behind = {row["name"]: row["behind"] for row in await conn.fetch(sql.followers)}
    return Lag(block_no, sealed_at, unsealed, oldest_in, behind)
