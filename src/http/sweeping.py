"""Ends what waits in cancelled campaigns, behind the answer: no worker may be running that would."""

from __future__ import annotations

import asyncio

import structlog

from ..errors import PostledgerError
from ..ledger import operating
from .pool import Pool

log = structlog.get_logger(__name__)


class Sweeper:
    """One campaign at a time; what is left when the process ends is swept by a worker, or by the next cancel."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._waiting: asyncio.Queue[int] = asyncio.Queue()

    def sweep(self, campaign_id: int) -> None:
        """Soon."""
        self._waiting.put_nowait(campaign_id)

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            campaign_id = await self._waiting.get()
            try:
                async with self._pool.connection() as conn:
                    swept = await operating.sweep(conn, campaign_id)
            except PostledgerError as error:
                log.warning("sweep_failed", campaign=campaign_id, reason=str(error))
            else:
                log.info("swept", campaign=campaign_id, recipients=swept)
