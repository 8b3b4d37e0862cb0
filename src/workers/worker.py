"""A worker process's heart: the loops, what they share, and how they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

import asyncpg
import structlog
from attrs import frozen

from ..database import Database, translate
from ..errors import ConflictError, PostledgerError
from ..ledger import campaigns
from ..ledger.queue import Outcome
from .deliver import Deliverer
from .dispatcher import Dispatcher
from .jobs import Jobs
from .link import Link, LinkLost
from .loops import forever, to_the_end, within
from .permits import Permits
from .reaper import Reaper
from .session import Session
from .settler import Settler

log = structlog.get_logger(__name__)

LAST_WORDS = 5.0
"""Seconds after the grace in which what was broken off is recorded."""


@frozen
class WorkerOptions:
    """`grace`: seconds that sends under way get to finish when the worker stops. `only`: serve one campaign."""

    concurrency: int = 50
    grace: float = 30.0
    base_url: str | None = None
    only: int | None = None


class Worker:
    """Claims, sends, settles, and watches over the others, until it is stopped.

    Three connections: one listens, holds the lock and asks for permits; one claims; one settles.
    """

    def __init__(
        self,
        database: Database,
        options: WorkerOptions,
        *,
        on_settled: Callable[[Sequence[Outcome]], None] = lambda _: None,
    ) -> None:
        self.options = options
        self.outcomes: Counter[str] = Counter()
        self._on_settled = on_settled
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._claims = Link(database, "worker claims")
        self._settles = Link(database, "worker settles")
        self.session = Session(database, self._claims, on_buried=self._buried)
        self.permits = Permits(self.session)
        self._settler = Settler(self._settles, on_settled=self._settled, on_trouble=self._trouble)
        self._jobs = Jobs(self._claims, concurrency=options.concurrency, base_url=options.base_url, room=self._room)
        self._deliverer = Deliverer(self._jobs, self.permits, self._settler, pause=self._pause)
        self._reaper = Reaper(self.session, self._claims)
        self.dispatcher = Dispatcher(
            self.session,
            self._claims,
            self.permits,
            lane_of=self._jobs.lane_of,
            hand_over=self._deliverer.hand_over,
            room=self._room,
            watch=self._reaper.needed,
            only=options.only,
        )

    async def open(self) -> None:
        """Connects and enlists. Raises PostledgerError when that cannot be done."""
        try:
            await self.session.open()
        except LinkLost as error:
            raise PostledgerError(str(error)) from error

    def stop(self) -> None:
        """Asks `run` to end: nothing new begins from now on."""
        self._stopping.set()

    async def run(self) -> None:
        """Works until `stop` or a cancellation, then ends in order."""
        loops = [
            asyncio.ensure_future(forever(step, name))
            for name, step in (
                ("session", self.session.step),
                ("permits", self.permits.step),
                ("settler", self._settler.step),
                ("reaper", self._reaper.step),
                ("dispatcher", self.dispatcher.step),
            )
        ]
        try:
            await self._stopping.wait()
        finally:
            await to_the_end(self._end(loops))

    async def _end(self, loops: Sequence[asyncio.Future[None]]) -> None:
        """What is under way may finish within the grace, the rest is given back; every outcome is recorded."""
        self.dispatcher.stopping.set()
        self.permits.close("shutdown")
        if not await within(self.options.grace, self._at_rest):
            for task in set(self._deliverer.tasks):
                task.cancel()
            if not await within(LAST_WORDS, self._at_rest):
                log.error("left_unrecorded", deliveries=sum(h.unsettled for h in self.permits.holds.values()))
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)
        await self._jobs.close()
        await self.session.close()
        await self._claims.close()
        await self._settles.close()

    def _at_rest(self) -> bool:
        return not (self._deliverer.tasks or self.permits.asking or self._settler.pending)

    def _settled(self, outcomes: Sequence[Outcome]) -> None:
        self.outcomes.update(outcome.type for outcome in outcomes)
        self._on_settled(outcomes)

    def _trouble(self, trouble: bool) -> None:
        if self.permits.blocked != trouble:
            self.permits.blocked = trouble
            self.permits.tell()

    def _buried(self) -> None:
        """This worker was declared dead: what it held belongs to others, what it has sent is recorded late."""
        self.permits.forget_all()

    async def _pause(self, campaign_id: int, reason: str) -> None:
        """Pauses a campaign that cannot go on; somebody else may have been first."""
        try:
            async with self._claims.use() as conn:
                await campaigns.change(conn, campaign_id, "Paused", {"reason": reason})
            log.warning("campaign_paused", campaign=campaign_id, reason=reason)
        except LinkLost as error:
            log.warning("pause_failed", campaign=campaign_id, reason=str(error)[:200])
        except asyncpg.PostgresError as error:
            told = translate(error, self._claims.database.dsn)
            if not isinstance(told, ConflictError):
                raise
