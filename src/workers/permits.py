"""The last question before a mail leaves: may it still be sent, and is this worker still itself?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

import asyncpg
import structlog
from attrs import define

from ..database import GONE, Connection, first_line
from ..ledger import queue
from ..ledger.queue import Delivery, Permit
from .link import LinkLost
from .loops import first_of, monotonic
from .providers.base import Withheld
from .session import Session

log = structlog.get_logger(__name__)

FRESH = 0.8
"""Seconds since a permit was asked for, in which a send may begin on it."""

EVERY = 0.5
"""Seconds between permits while anything is held."""

BEATS_PER_LEASE = 4
"""The permit renews the lease, which is 60 s, every 15 s."""

ANSWER_WITHIN = 2.0


@define
class Hold:
    """A claim this worker holds: when its answer was here, and how many of its rows are not settled."""

    campaign_id: int
    answered_at: float
    unsettled: int


class Permits:
    """Asks while anything is held, at once when a send waits for an answer; one question under way at a time."""

    def __init__(
        self, session: Session, *, lease_in: timedelta = queue.LEASE_IN, clock: Callable[[], float] = monotonic
    ) -> None:
        self.session = session
        self.beat_every = lease_in.total_seconds() / BEATS_PER_LEASE
        self.clock = clock
        self.holds: dict[UUID, Hold] = {}
        self.asking: set[UUID] = set()
        """Claim calls under way: rows may stand under our name that we have not seen yet."""
        self.closed: str | None = None
        """Why nothing may begin any more (shutdown)."""
        self.blocked = False
        """While outcomes cannot be recorded, nothing new begins."""
        self.last: Permit | None = None
        self._wanted = asyncio.Event()
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._beat_at = float("-inf")

    def hold(self, rows: Sequence[Delivery]) -> None:
        """Rows of one claim have arrived."""
        first = rows[0]
        self.holds[first.claim_id] = Hold(first.campaign_id, self.clock(), len(rows))
        self._wanted.set()

    def drop(self, claim_id: UUID, count: int = 1) -> None:
        """So many more rows of a claim are settled.

        What cannot be recorded stays held: a claim that we do not name is released, as if nothing of it had left.
        """
        hold = self.holds.get(claim_id)
        if hold is not None:
            hold.unsettled -= count
            if hold.unsettled <= 0:
                del self.holds[claim_id]

    def forget_all(self) -> None:
        """Everything that was held belongs to others now."""
        self.holds.clear()
        self.last = None
        self.tell()

    def close(self, reason: str) -> None:
        """From now on nothing begins."""
        self.closed = reason
        self.tell()

    def block(self, blocked: bool) -> None:
        """Whether outcomes cannot be recorded just now."""
        if self.blocked != blocked:
            self.blocked = blocked
            self.tell()

    def tell(self) -> None:
        """Lets everybody who waits look again."""
        answered, self._answered = self._answered, asyncio.get_running_loop().create_future()
        if not answered.done():
            answered.set_result(None)

    async def begin(self, delivery: Delivery) -> None:
        """Returns when this delivery may be sent right now; raises Withheld(reason) when it may not."""
        (reason,) = await self.begin_batch([delivery])
        if reason is not None:
            raise Withheld(reason)

    async def begin_batch(self, rows: Sequence[Delivery]) -> list[str | None]:
        """Why each of these rows of one claim may not be sent right now, None where it may: all on one permit."""
        permit = await self._fresh(rows[0].claim_id)
        if rows[0].claim_id in permit.lost:
            return ["lost"] * len(rows)
        if rows[0].campaign_id in permit.stopped:
            return ["campaign"] * len(rows)
        return ["suppressed" if row.delivery_id in permit.suppressed else None for row in rows]

    async def _fresh(self, claim_id: UUID) -> Permit:
        """A permit for this claim, waited for; raises Withheld where none can come any more."""
        while True:
            if self.closed is not None:
                raise Withheld(self.closed)
            hold = self.holds.get(claim_id)
            if hold is None:
                raise Withheld("lost")
            permit = self.last
            if not self.blocked:  # else asking would bring nothing, as fast as the server can answer
                if permit is not None and self._covers(permit, hold):
                    return permit
                self._wanted.set()
            await asyncio.shield(self._answered)

    def _covers(self, permit: Permit, hold: Hold) -> bool:
        """Asked for when the claim's answer was here already, and not long ago."""
        return permit.asked_at > hold.answered_at and self.clock() - permit.asked_at < FRESH

    async def step(self) -> None:
        """One question, at once when a send waits for it, every half second while anything is held."""
        if self.holds:
            await first_of(self._wanted, within=EVERY)
        else:
            await self._wanted.wait()
        self._wanted.clear()
        if self.holds:
            await self._ask()

    async def _ask(self) -> None:
        """Waits for the session when that is being re-made."""
        try:
            async with self.session.use() as conn:
                permit = await self._asked(conn)
                self._heed(permit)
                for claim_id in permit.strays - self.asking - self.holds.keys():
                    await self._release(conn, claim_id)
        except LinkLost as error:
            log.info("permit_failed", reason=str(error))
            self._wanted.set()

    async def _asked(self, conn: Connection) -> Permit:
        now = self.clock()
        beat = now - self._beat_at >= self.beat_every
        permit = await queue.ask_permit(
            conn,
            self.session.worker,
            self.session.number,
            list(self.holds),
            list(self.asking),
            beat=beat,
            now=now,
            timeout=ANSWER_WITHIN,
        )
        self._beat_at = now if beat else self._beat_at
        return permit

    def _heed(self, permit: Permit) -> None:
        if not permit.alive:
            log.warning("not_alive", worker=self.session.worker)
            self.session.disconnect()  # the reconnect finds out, and starts a new life
            raise LinkLost("this worker was declared dead")
        for claim_id in permit.lost:
            self.holds.pop(claim_id, None)
        self.last = permit
        self.tell()

    async def _release(self, conn: Connection, claim_id: UUID) -> None:
        """A claim whose call we have given up on, and that went through all the same. Nothing of it was sent."""
        try:
            released = await conn.fetchval(queue.sql.release_claim, claim_id, self.session.worker, timeout=10)
            log.warning("stray_claim_released", claim=str(claim_id), rows=released)
        except asyncpg.LockNotAvailableError:
            log.info("stray_claim_locked", claim=str(claim_id))
        except asyncpg.PostgresError as error:
            if isinstance(error, GONE):
                raise
            log.error("stray_claim_not_released", claim=str(claim_id), reason=first_line(error))
