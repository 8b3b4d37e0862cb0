"""Decides what to claim next: woken by notifications and free slots, never by a poll."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import structlog

from ..database import translate
from ..errors import ConflictError, PostledgerError
from ..ledger import queue
from ..ledger.queue import Claim, Delivery, Work
from .lanes import Lane
from .link import Backoff, Link, LinkLost
from .loops import first_of, monotonic
from .permits import Permits
from .session import Session

log = structlog.get_logger(__name__)

BUSY_AGAIN = 0.05
"""Seconds after which a campaign or row that somebody else held is asked for again."""

PLAN_AGE = 1.0
"""Seconds for which an order of campaigns is good."""

FAULTY = 2.0
"""Seconds after which a campaign that made trouble is tried again, or when somebody wakes us."""

UNUSABLE = 30.0
"""The same for one whose sender or letter cannot be used here."""

SWEEP = 1000
"""Rows of a cancelled campaign in one call."""

NEVER = float("inf")
"""A campaign that has nothing more by itself."""


class Dispatcher:
    """Claims for every lane that has room.

    `hand_over(rows, lane)` starts the sends; `lane_of(campaign)` knows the sender. `only` limits it to one campaign.
    """

    def __init__(
        self,
        session: Session,
        link: Link,
        permits: Permits,
        *,
        lane_of: Callable[[int], Awaitable[Lane]],
        hand_over: Callable[[Sequence[Delivery], Lane], None],
        room: asyncio.Event,
        watch: asyncio.Event,
        only: int | None = None,
    ) -> None:
        self.session = session
        self.link = link
        self.permits = permits
        self.lane_of = lane_of
        self.hand_over = hand_over
        self.watch = watch
        self.only = only
        self.room = room
        """Set when a lane has become worth a claim, or idle."""
        self.rest = asyncio.Event()
        """Set when a look found nothing to do now and nothing that will fall due."""
        self.stopping = asyncio.Event()
        self._plan: list[int] = []
        self._cancelled: list[int] = []
        self._aside: dict[int, float] = {}
        """Campaigns that made trouble, and when they are tried again."""
        self._told: dict[int, str] = {}
        self._planned_at = -NEVER
        self._due_at = NEVER

    async def step(self) -> None:
        """Serves what there is; if there is nothing more to take just now, sleeps until there may be."""
        if self.stopping.is_set():
            await asyncio.Event().wait()
        self.room.clear()
        try:
            if self._must_plan():
                await self._make_plan()
            again_in = await self._serve()
        except LinkLost as error:
            log.warning("claim_failed", reason=str(error))
            self._plan = []
            again_in = random.uniform(0.1, 0.5)
        await first_of(self.session.wake, self.room, self.stopping, within=again_in)

    def _must_plan(self) -> bool:
        now = monotonic()
        return not self._plan or self.session.wake.is_set() or now - self._planned_at > PLAN_AGE or now >= self._due_at

    async def _make_plan(self) -> None:
        if self.session.wake.is_set():
            self._aside.clear()  # perhaps somebody has mended it
        self.session.wake.clear()  # before the look: what comes during it is looked at again
        async with self.session.use() as conn:
            work = await queue.next_work(conn, self.session.worker, self.only, timeout=10)
        if work.watch:
            self.watch.set()
        self._planned_at, self._due_at = monotonic(), NEVER
        self._plan = self._not_aside(work.campaigns)
        self._cancelled = self._not_aside(work.cancelled)
        self._falls_due(work.due_in)
        for campaign_id in self._not_aside(work.finishable):
            await self._guarded(campaign_id, self._finish)
        if self._at_rest(work):
            self.rest.set()
        else:
            self.rest.clear()

    def _falls_due(self, due_in: timedelta | None) -> None:
        if due_in is not None:
            self._due_at = min(self._due_at, monotonic() + due_in.total_seconds())

    def _at_rest(self, work: Work) -> bool:
        """Who works for every campaign has a duty to the claims of others too, until they are settled or given back."""
        return (
            not work.campaigns
            and not work.cancelled
            and work.due_in is None
            and not self.permits.holds
            and (self.only is not None or not work.watch)
        )

    def _not_aside(self, campaigns: Sequence[int]) -> list[int]:
        """Without those that made trouble a moment ago; they fall due when it is their turn again."""
        now = monotonic()
        self._aside = {campaign: at for campaign, at in self._aside.items() if at > now}
        self._due_at = min(self._due_at, *self._aside.values(), NEVER)
        return [campaign for campaign in campaigns if campaign not in self._aside]

    async def _guarded(self, campaign_id: int, call: Callable[[int], Awaitable[float]]) -> float:
        """One campaign that makes trouble must not hold up the others."""
        try:
            return await call(campaign_id)
        except LinkLost:
            raise
        except PostledgerError as error:  # its sender or its letter cannot be used; perhaps elsewhere they can
            if self._told.get(campaign_id) != str(error):
                log.error("campaign_cannot_be_served", campaign=campaign_id, reason=str(error))
            self._told[campaign_id] = str(error)
            again_in = UNUSABLE
        except Exception:
            log.exception("campaign_failed", campaign=campaign_id)
            again_in = FAULTY
        self._aside[campaign_id] = monotonic() + again_in
        self._plan = self._not_aside(self._plan)
        self._cancelled = self._not_aside(self._cancelled)
        return NEVER

    async def _finish(self, campaign_id: int) -> float:
        async with self.link.use() as conn:
            finished = await conn.fetchval(queue.sql.finish, campaign_id, timeout=300)
        if finished:
            log.info("campaign_finished", campaign=campaign_id)
        return NEVER

    async def _serve(self) -> float:
        """One round over the plan; returns the seconds after which another one makes sense."""
        again_in = self.session.sweep_in
        for campaign_id in list(self._cancelled):
            again_in = min(again_in, await self._guarded(campaign_id, self._sweep_one))
        for campaign_id in list(self._plan):
            if self.stopping.is_set():
                break
            again_in = min(again_in, await self._guarded(campaign_id, self._serve_one))
        return min(again_in, max(self._due_at - monotonic(), 0.0))

    async def _sweep_one(self, campaign_id: int) -> float:
        """The rows of a cancelled campaign need no sender."""
        claim = await self._claim(campaign_id, uuid4(), SWEEP, content=False)
        if claim.busy:
            return BUSY_AGAIN * random.uniform(0.5, 1.5)
        if claim.cancelled < SWEEP:
            self._cancelled.remove(campaign_id)
            self._plan = []  # perhaps its end: the next plan will say
        return 0.0

    async def _serve_one(self, campaign_id: int) -> float:
        lane = await self.lane_of(campaign_id)
        limit = lane.claimable()
        if limit == 0:
            return lane.retry_in()
        claim = await self._claim(campaign_id, uuid4(), limit, content=lane.provider.renders)
        if claim.rows:
            lane.take(len(claim.rows))
            self.permits.hold(claim.rows)
            self.hand_over(claim.rows, lane)
        if len(claim.rows) + claim.skipped + claim.cancelled >= limit:
            return 0.0
        if claim.busy:
            return BUSY_AGAIN * random.uniform(0.5, 1.5)
        self._plan.remove(campaign_id)
        self._falls_due(claim.due_in)
        if not claim.rows and not self.permits.holds:
            return 0.0  # perhaps its end: the next plan will say
        return NEVER

    async def _claim(self, campaign_id: int, claim_id: UUID, limit: int, *, content: bool) -> Claim:
        """One claim, repeated with its id until there is an answer: no row is taken without our knowing."""
        backoff = Backoff()
        worker = self.session.worker
        self.permits.asking.add(claim_id)
        try:
            while True:
                worker = self.session.worker
                try:
                    async with self.link.use() as conn:
                        return await queue.claim(
                            conn, campaign_id, claim_id, worker, limit, content=content, timeout=30
                        )
                except LinkLost:
                    if self.stopping.is_set():
                        raise
                    await backoff.wait()
        except asyncpg.UniqueViolationError as error:
            # The lost call went on and has rows, or had them in our former life: the permit or the others free them.
            raise LinkLost(str(error)) from error
        except asyncpg.PostgresError as error:
            told = translate(error, self.link.database.dsn)
            if not isinstance(told, ConflictError):
                raise
            if worker == self.session.worker:
                self.session.disconnect()  # declared dead (PL006): the reconnect starts a new life
            raise LinkLost(str(told)) from error
        finally:
            self.permits.asking.discard(claim_id)
