"""Sealing what was committed: whoever appends sees to it, before it leaves too."""

from __future__ import annotations

import asyncio
import random
import time

import structlog

from ..database import Blocks, Connection

log = structlog.get_logger(__name__)

sql = Blocks("postledger.ledger", "sealing.sql")

AGAIN = 0.03
"""Seconds between calls while somebody else is at it."""

WITHIN = 10.0
"""Seconds after which a command leaves the sealing of its events to the next one; nothing but time is lost by that."""


async def seal(conn: Connection, *, timeout: float | None = None) -> int | None:
    """One call: the new block's number, 0 when there was nothing to seal, None when somebody else is at it.

    `conn` must be in no transaction.
    """
    block: int | None = await conn.fetchval(sql.seal, timeout=timeout)
    return block


async def seal_all(conn: Connection, *, within: float = WITHIN) -> bool:
    """Returns when all that was committed before the call is in a block; False when that could not be had in time.

    Somebody else's block may have been taken before our commit, so one that is being made does not count.
    """
    until = time.monotonic() + within
    while await seal(conn, timeout=within) is None:
        if time.monotonic() >= until:
            log.warning("left_unsealed", within=within)
            return False
        await asyncio.sleep(AGAIN * random.uniform(0.5, 1.5))
    return True
