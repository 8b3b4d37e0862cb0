"""Sends one campaign with a worker in this process, until it ends, pauses or somebody stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing

from attrs import frozen

from ..database import Database
from ..errors import UnavailableError
from ..ledger import campaigns
from ..workers.link import Link, LinkLost
from ..workers.loops import first_of, monotonic
from ..workers.worker import Worker, WorkerOptions
from .exits import Exit
from .progress import Display
from .report import GO_ON
from .runner import Interrupts

LOOK_AGAIN = 5.0
"""Seconds between looks at the campaign where nothing wakes us: for the counts, and to see that the database is up."""

LOOK_AGAIN_WHEN_AWAY = 0.5

PAUSE = 0.05
"""Seconds between looks at the least: a wake-up stays set until the dispatcher, busy claiming, has seen it too."""

LOOK_AGAIN_AT_REST = 2.0
"""The same while only others have work on it: their last word could have come while we looked."""

COUNT_EVERY = 10.0
"""Seconds between true counts, which a large campaign takes a while for; between them our own outcomes are added."""

GIVE_UP = 20.0
"""Seconds without the database after which `send` ends. Whatever was sent by then is recorded, or ends as unknown."""


@frozen
class Ending:
    """How it ended: the campaign's status, and whether somebody stopped us before."""

    status: str
    counts: Mapping[str, int]
    stopped: bool

    @property
    def code(self) -> Exit:
        """Stopped or paused before a stopped run's failures; those before success."""
        if self.status not in ("completed", "cancelled"):
            return Exit.STOPPED
        incomplete = self.status == "cancelled" or any(self.counts[s] for s in ("failed", "unknown", "cancelled"))
        return Exit.INCOMPLETE if incomplete else Exit.OK


async def send_out(
    database: Database,
    campaign_id: int,
    options: WorkerOptions,
    *,
    listen: Database,
    interrupts: Interrupts,
    display: Display,
) -> Ending:
    """Raises UnavailableError when the database stays away."""
    with interrupts.gently():
        worker = Worker(database, options, listen=listen, on_settled=display.settled)
        await worker.open()
        working = asyncio.ensure_future(worker.run())
        try:
            async with aclosing(_Watch(database, campaign_id, worker, interrupts, display)) as watch:
                await watch.run(working)
                worker.stop()
                await working
                return await watch.ending()
        finally:
            worker.stop()
            await asyncio.wait([working])


class _Watch:
    """Looks at the campaign whenever it may have ended. Others may work on it too, so only the database knows."""

    def __init__(
        self, database: Database, campaign_id: int, worker: Worker, interrupts: Interrupts, display: Display
    ) -> None:
        self._link = Link(database, "send")
        self._campaign_id = campaign_id
        self._worker = worker
        self._interrupts = interrupts
        self._display = display
        self._counted_at = -COUNT_EVERY
        self._count_every = COUNT_EVERY
        self._away_since: float | None = None

    async def run(self, working: asyncio.Future[None]) -> None:
        """Returns when there is no more to wait for."""
        while not self._interrupts.asked.is_set() and not working.done():
            rested = self._worker.dispatcher.rest.is_set()
            if await self._ended():
                return
            await first_of(self._interrupts.asked, within=PAUSE)
            await self._wait(rested=rested)

    async def _wait(self, *, rested: bool) -> None:
        """Until another look makes sense. `rested`: the worker had nothing to do before the last look already."""
        rest, wake, asked = self._worker.dispatcher.rest, self._worker.session.wake, self._interrupts.asked
        if self._away_since is not None:
            await first_of(asked, within=LOOK_AGAIN_WHEN_AWAY)
        elif rested:
            await first_of(wake, asked, within=LOOK_AGAIN_AT_REST)
        else:
            await first_of(rest, wake, asked, within=LOOK_AGAIN)

    async def ending(self) -> Ending:
        """After the last outcome is recorded."""
        status, counts = await self._read()
        return Ending(status, counts, self._interrupts.asked.is_set())

    async def aclose(self) -> None:
        """Gives the connection back."""
        await self._link.close()

    async def _ended(self) -> bool:
        try:
            ended = await self._look()
        except LinkLost as error:
            self._away_since = self._away_since or monotonic()
            if monotonic() - self._away_since > GIVE_UP:
                raise UnavailableError(f"the database has been away for {GIVE_UP:.0f} s ({error}): {GO_ON}") from error
            return False
        self._away_since = None
        return ended

    async def _look(self) -> bool:
        async with self._link.use() as conn:
            status = await conn.fetchval(campaigns.sql.status, self._campaign_id, timeout=10)
        if monotonic() - self._counted_at >= self._count_every:
            await self._count()
        if status == "cancelled":
            return self._worker.dispatcher.rest.is_set()  # our worker sweeps it
        return bool(status != "sending")

    async def _count(self) -> None:
        begun = monotonic()
        async with self._link.use() as conn:
            counts = await campaigns.counts(conn, self._campaign_id)
        self._counted_at = monotonic()
        self._count_every = max(COUNT_EVERY, 50 * (self._counted_at - begun))
        self._display.counted(counts)

    async def _read(self) -> tuple[str, Mapping[str, int]]:
        try:
            async with self._link.use() as conn:
                status: str = await conn.fetchval(campaigns.sql.status, self._campaign_id, timeout=10)
                return status, await campaigns.counts(conn, self._campaign_id)
        except LinkLost as error:
            raise UnavailableError(f"the database went away ({error}): {GO_ON}") from error
