"""Decides what to claim next: woken by notifications and free slots, never by a poll."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import UUID, uuid4

import asyncpg
import structlog

from ..database import translate
from ..errors import ConflictError, PostledgerError
from ..ledger import queue
from ..ledger.queue import Claim, Delivery, Lease, Work
from . import meters
from .endings import Endings
from .lanes import Lane
from .link import Backoff, Link, LinkLost
from .loops import first_of, monotonic
from .permits import Permits
from .plan import NEVER, Plan
from .session import Session
from .turns import Round, Turns

log = structlog.get_logger(__name__)

BUSY_AGAIN = 0.05
"""Seconds after which a campaign or row that somebody else held is asked for again."""

FAULTY = 2.0
"""Seconds after which a campaign that made trouble is tried again, or when somebody wakes us."""

UNUSABLE = 30.0
"""The same for one whose sender or letter cannot be used here."""

SWEEP = 1000
"""Rows of a cancelled campaign in one call."""


class Dispatcher:
    """Claims for every lane that has room.

    `hand_over(rows, lane)` starts the sends; `lane_of(campaign)` knows the sender. `ends` is a link of its own for the
    ends of campaigns. `only` limits it to one campaign.
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
        ends: Link | None = None,
        only: int | None = None,
        on_unsealed: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.session = session
        self.link = link
        self.permits = permits
        self.lane_of = lane_of
        self.hand_over = hand_over
        self.watch = watch
        self.only = only
        self.on_unsealed = on_unsealed
        """Told when a look found what others have left unsealed."""
        self.room = room
        """Set when a lane has become worth a claim, or idle."""
        self.rest = asyncio.Event()
        """Set when a look found nothing to do now and nothing that will fall due."""
        self.stopping = asyncio.Event()
        self._plan = Plan(clock)
        self._turns = Turns()
        self._told: dict[int, str] = {}
        self.endings = Endings(ends or link, on_fault=self._end_failed, on_ended=self._rest_or_not)
        self._idle = False
        """Whether the last look found nothing to do; the ends of campaigns may be under way still."""

    async def step(self) -> None:
        """Serves what there is; if there is nothing more to take just now, sleeps until there may be."""
        if self.stopping.is_set():
            await asyncio.Event().wait()
        self.room.clear()
        try:
            if self.session.wake.is_set() or self._plan.is_old(self._held()):
                await self._make_plan()
            again_in = await self._serve()
        except LinkLost as error:
            log.warning("claim_failed", reason=str(error))
            self._plan.forget()
            again_in = random.uniform(0.1, 0.5)
        await first_of(self.session.wake, self.room, self.stopping, within=again_in)

    def _held(self) -> set[int]:
        return {hold.campaign_id for hold in self.permits.holds.values()}

    async def _make_plan(self) -> None:
        if self.session.wake.is_set():
            self._plan.forgive()
        self.session.wake.clear()  # before the look: what comes during it is looked at again
        async with self.session.use() as conn:
            work = await queue.next_work(conn, self.session.worker, self.only, timeout=10)
        if work.watch:
            self.watch.set()
        if work.unsealed:
            self.on_unsealed()
        self._plan.renew(work)
        for campaign_id in self._plan.not_aside(work.waking):
            await self._guarded(campaign_id, self._wake)
        for campaign_id in self._plan.not_aside(work.finishable):
            self.endings.begin(campaign_id)
        self._idle = self._is_idle(work)
        if not work.campaigns:
            self.session.woken_at = None  # it was for others, or nothing
        self._rest_or_not()

    def _rest_or_not(self) -> None:
        if self._idle and not self.endings.under_way:
            self.rest.set()
        else:
            self.rest.clear()

    def _end_failed(self, campaign_id: int, again_in: float) -> None:
        self._plan.set_aside(campaign_id, again_in)
        self._plan.falls_due(timedelta(seconds=again_in))
        self.room.set()  # the loop may sleep for longer

    def _is_idle(self, work: Work) -> bool:
        """Who works for every campaign has a duty to the claims of others too, until they are settled or given back.

        What is scheduled, or paused until a time, is none: it may be months, and another worker's affair.
        """
        return (
            not work.campaigns
            and not work.cancelled
            and not work.waking
            and work.due_in is None
            and not self.permits.holds
            and (self.only is not None or not work.watch)
        )

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
        self._plan.set_aside(campaign_id, again_in)
        return NEVER

    async def _wake(self, campaign_id: int) -> float:
        """Its hour has come, by the database's clock: it starts or resumes."""
        async with self.link.use() as conn:
            event = await conn.fetchval(queue.sql.wake_campaign, campaign_id, timeout=30)
        if event == "busy":
            self._plan.falls_due(timedelta(seconds=BUSY_AGAIN))
            return NEVER
        self.session.wake.set()  # whoever did it: there is work now
        if event is not None:
            log.info("campaign_woken", campaign=campaign_id, into=event)
        return NEVER

    async def _serve(self) -> float:
        """One round over the plan; returns the seconds after which another one makes sense."""
        again_in = self.session.sweep_in
        for campaign_id in list(self._plan.cancelled):
            again_in = min(again_in, await self._guarded(campaign_id, self._sweep_one))
        turn = await self._round()
        for campaign_id in self._turns.order(turn.lanes, self._plan.priorities):
            if self.stopping.is_set():
                break
            again_in = min(again_in, await self._guarded(campaign_id, partial(self._serve_one, turn)))
        return 0.0 if turn.is_unfair else min(again_in, self._plan.due_in)

    async def _round(self) -> Round:
        """Every lane that is wanted, with the tokens that it needs where its sender has a rate."""
        lanes: dict[int, Lane] = {}
        for campaign_id in list(self._plan.rates):
            await self._guarded(campaign_id, partial(self._find_lane, lanes))
        for lane in set(lanes.values()):
            await self._lease_tokens(lane)
        return Round(lanes, self._plan.priorities)

    async def _find_lane(self, lanes: dict[int, Lane], campaign_id: int) -> float:
        lanes[campaign_id] = lane = await self.lane_of(campaign_id)
        lane.limit(self._plan.rates[campaign_id])
        return NEVER

    async def _lease_tokens(self, lane: Lane) -> None:
        how_long = lane.wants_tokens()
        if how_long is None or lane.tokens is None:
            return
        try:
            async with self.link.use() as conn:
                lease = await queue.lease_tokens(conn, lane.sender, how_long, timeout=10)
        except asyncpg.PostgresError:
            log.exception("lease_failed", sender=lane.sender)
            lease = Lease(0, 0.0, None, timedelta(seconds=FAULTY))
        if lease.each is None:
            lane.limit(None)  # since we looked
        else:
            lane.tokens.take(lease)

    async def _sweep_one(self, campaign_id: int) -> float:
        """The rows of a cancelled campaign need no sender."""
        claim = await self._claim(campaign_id, uuid4(), SWEEP, content=False)
        if claim.busy:
            return BUSY_AGAIN * random.uniform(0.5, 1.5)
        if claim.cancelled < SWEEP:
            self._plan.cancelled.remove(campaign_id)
            self._plan.forget()  # perhaps its end: the next plan will say
        return 0.0

    async def _serve_one(self, turn: Round, campaign_id: int) -> float:
        lane = turn.lanes[campaign_id]
        limit = turn.portion(campaign_id)
        if limit == 0:
            return self._later(lane, turn)
        self._turns.served(campaign_id)
        claim = await self._claim(campaign_id, uuid4(), limit, content=lane.provider.renders)
        self._told.pop(campaign_id, None)  # what was wrong is mended: should it come again, it is told again
        if claim.rows:
            lane.take(len(claim.rows), campaign_id)
            turn.gave(campaign_id, len(claim.rows))
            self.permits.hold(claim.rows)
            self._measure(len(claim.rows))
            self.hand_over(claim.rows, lane)
        if len(claim.rows) + claim.skipped + claim.cancelled >= limit:
            return 0.0
        if claim.busy:
            return BUSY_AGAIN * random.uniform(0.5, 1.5)
        self._plan.is_empty(campaign_id)
        turn.wants_no_more(campaign_id)
        self._plan.falls_due(claim.due_in)
        return NEVER if claim.rows else 0.0

    def _measure(self, claimed: int) -> None:
        meters.CLAIMED.inc(claimed)
        if self.session.woken_at is not None:
            meters.WAKE.observe(monotonic() - self.session.woken_at)
            self.session.woken_at = None

    def _later(self, lane: Lane, turn: Round) -> float:
        """When a campaign that gets nothing in this round may get something."""
        if turn.room[lane]:
            return NEVER  # it has its share; the others' slots, or their leaving, will tell
        return 0.0 if lane.claimable() else lane.retry_in()

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
                        with meters.timed(meters.CLAIM):
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
