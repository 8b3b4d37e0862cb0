"""A worker process's heart: the loops, what they share, and how they end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import groupby
from operator import attrgetter

import asyncpg
import structlog
from attrs import frozen

from ..database import Database, first_line, translate, translated
from ..errors import ConflictError, UnavailableError
from ..ledger import campaigns, queue
from ..ledger.queue import LEASE_IN, Outcome
from . import meters
from .deliver import Deliverer
from .dispatcher import Dispatcher
from .jobs import Jobs
from .link import Link, LinkLost
from .loops import forever, to_the_end, within
from .permits import Permits
from .reaper import Reaper
from .sealer import Sealer
from .session import Session
from .settler import Settler

log = structlog.get_logger(__name__)

LAST_WORDS = 5.0
"""Seconds at the end of the grace, but no more than half of it, in which sends are broken off and recorded."""


RELEASE_WITHIN = 2.0

PAUSE_AGAIN = 0.1
"""Seconds after which a pause is tried again while somebody adds people to the campaign."""


@frozen
class WorkerOptions:
    """`grace`: seconds within which the worker ends when it is stopped. `only`: serve one campaign.

    `lease_in`: how long a worker that gives no sign is believed to be alive; the same for all workers of a database.
    """

    concurrency: int = 50
    grace: float = 30.0
    base_url: str | None = None
    only: int | None = None
    lease_in: timedelta = LEASE_IN


class Worker:
    """Claims, sends, settles, and watches over the others, until it is stopped.

    Four connections: one listens, holds the lock and asks for permits; one claims; one settles; one seals. Two more
    come when campaigns are paused or end, which may have to wait. `listen` is the server's own address for the first
    of them, where `database` is a pooler.
    """

    def __init__(
        self,
        database: Database,
        options: WorkerOptions,
        *,
        listen: Database | None = None,
        on_settled: Callable[[Sequence[Outcome]], None] = lambda _: None,
    ) -> None:
        self.options = options
        self.outcomes: Counter[str] = Counter()
        self._on_settled = on_settled
        self._room = asyncio.Event()
        self._stopping = asyncio.Event()
        self._seals = Link(database, "worker seals")
        self._sealer = Sealer(self._seals)
        self._claims = Link(database, "worker claims", on_used=self._sealer.note)
        self._settles = Link(database, "worker settles", on_used=self._sealer.note)
        self._pauses = Link(database, "worker pauses", on_used=self._sealer.note)
        self._ends = Link(database, "worker ends", on_used=self._sealer.note)
        self.session = Session(listen or database, self._claims, on_buried=self._buried, on_unfit=self.stop)
        self.permits = Permits(self.session, lease_in=options.lease_in)
        self._settler = Settler(self._settles, on_settled=self._settled, on_trouble=self.permits.block)
        self._jobs = Jobs(
            self._claims,
            concurrency=options.concurrency,
            base_url=options.base_url,
            room=self._room,
            pause=self._pause,
        )
        self._deliverer = Deliverer(self._jobs, self.permits, self._settler, pause=self._pause)
        self._reaper = Reaper(self.session, self._claims, lease_in=options.lease_in)
        self.dispatcher = Dispatcher(
            self.session,
            self._claims,
            self.permits,
            lane_of=self._jobs.lane_of,
            hand_over=self._deliverer.hand_over,
            room=self._room,
            watch=self._reaper.needed,
            ends=self._ends,
            only=options.only,
            on_unsealed=self._sealer.note,
        )

    async def open(self) -> None:
        """Connects and enlists. Raises PostledgerError when that cannot be done."""
        try:
            with translated(self.session.database.dsn):
                await self.session.open()
        except LinkLost as error:
            raise UnavailableError(f"the database went away: {error}") from error

    @property
    def listening(self) -> bool:
        """Whether notifications reach it."""
        return self.session.hears and self.session.is_open

    @property
    def held(self) -> int:
        """Deliveries in hand: claimed, and not settled yet."""
        return sum(hold.unsettled for hold in self.permits.holds.values())

    def stop(self) -> None:
        """Asks `run` to end: nothing new begins from now on."""
        self._stopping.set()

    async def run(self) -> None:
        """Works until `stop` or a cancellation, then ends in order.

        Raises ConfigurationError, in order too, when this program and the database do not go together any more.
        """
        loops = [
            asyncio.ensure_future(forever(step, name))
            for name, step in (
                ("session", self.session.step),
                ("permits", self.permits.step),
                ("settler", self._settler.step),
                ("reaper", self._reaper.step),
                ("sealer", self._sealer.step),
                ("dispatcher", self.dispatcher.step),
            )
        ]
        try:
            with meters.watching(self):
                await self._stopping.wait()
        finally:
            await to_the_end(self._end(loops))
        if self.session.unfit is not None:
            raise self.session.unfit

    async def _end(self, loops: Sequence[asyncio.Future[None]]) -> None:
        """What is under way may finish, the rest is given back, every outcome is recorded: all within the grace."""
        self.dispatcher.stopping.set()
        self.permits.close("shutdown")
        last_words = min(LAST_WORDS, self.options.grace / 2)
        if not await within(self.options.grace - last_words, self._at_rest):
            self._break_off()
            if not await within(last_words / 2, self._at_rest):
                self._break_off()  # those whose relay still owes an answer: it is not waited for any more
                await within(last_words / 2, self._at_rest)
        await self._stop(loops)

    def _break_off(self) -> None:
        for task in set(self._deliverer.tasks):
            task.cancel()

    def _at_rest(self) -> bool:
        return not (self._deliverer.tasks or self.permits.asking or self._settler.pending)

    async def _stop(self, loops: Sequence[asyncio.Future[None]]) -> None:
        """What is still held now has an unknown outcome: others will find it."""
        for work in (*loops, *self._deliverer.tasks):
            work.cancel()
        await asyncio.gather(*loops, *self._deliverer.tasks, return_exceptions=True)
        if self.permits.holds:
            log.error("left_unrecorded", deliveries=self.held)
        await self.dispatcher.endings.close()
        await self._release_strays()
        await self._sealer.finish()
        links = (self._claims, self._settles, self._pauses, self._ends, self._seals)
        await asyncio.gather(self._jobs.close(), self.session.close(), *(link.close() for link in links))

    async def _release_strays(self) -> None:
        """Claims whose answer we never had: nothing of them was sent, and nobody else can know that."""
        try:
            async with asyncio.timeout(RELEASE_WITHIN), self._claims.use() as conn:
                await conn.fetchval(queue.sql.release_strays, self.session.worker, list(self.permits.holds))
        except (LinkLost, TimeoutError, asyncpg.PostgresError) as error:
            log.warning("release_failed", worker=self.session.worker, reason=first_line(error))

    def _settled(self, outcomes: Sequence[Outcome]) -> None:
        for claim_id, group in groupby(outcomes, attrgetter("delivery.claim_id")):
            self.permits.drop(claim_id, len(list(group)))
        self.outcomes.update(outcome.type for outcome in outcomes)
        try:
            self._on_settled(outcomes)
        except Exception:  # whoever looks on must not hold up the work
            log.exception("onlooker_failed")

    def _buried(self) -> None:
        """This worker was declared dead: what it held belongs to others, what it has sent is recorded late."""
        self.permits.forget_all()

    async def _pause(self, campaign_id: int, reason: str, resume_in: timedelta | None = None) -> None:
        """Pauses a campaign that cannot go on, for a while or until somebody resumes it; others may be first."""
        try:
            while not await self._paused(campaign_id, reason, resume_in):  # noqa: ASYNC110 - others hold its lock
                await asyncio.sleep(PAUSE_AGAIN)
            seconds = None if resume_in is None else resume_in.total_seconds()
            log.warning("campaign_paused", campaign=campaign_id, reason=reason, resume_in=seconds)
        except LinkLost as error:  # the next refusal asks for it again
            log.warning("pause_failed", campaign=campaign_id, reason=str(error))
        except asyncpg.PostgresError as error:
            told = translate(error, self._claims.database.dsn)
            if not isinstance(told, ConflictError):
                raise

    async def _paused(self, campaign_id: int, reason: str, resume_in: timedelta | None) -> bool:
        """False: somebody adds people to the campaign just now."""
        async with self._pauses.use() as conn:
            try:
                await campaigns.pause(conn, campaign_id, reason, resume_in)
            except asyncpg.LockNotAvailableError:  # here: the link takes it for its own end
                return False
        return True
