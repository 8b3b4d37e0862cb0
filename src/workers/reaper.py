"""Finds dead workers and gives their rows back: every worker tries for this watch, one at a time has it.

Behind a pooler nobody can have it, nor learn anything from a lock that is free: there everybody looks, and goes by
leases alone. Two who bury and reclaim the same are no harm: either call looks again, under a lock.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from datetime import timedelta

import asyncpg
import structlog
from attrs import define, evolve, field, frozen

from ..database import GONE, Connection, fetch_one, first_line
from ..ledger import queue
from . import meters
from .link import Link, LinkLost
from .loops import monotonic
from .session import Session

log = structlog.get_logger(__name__)

PROBE_EVERY = 1.0
"""Seconds between the two probes that prove a death, at least."""

NEXT_PROBE = 1.02
"""Seconds between probes: timers may fire a little early, and a third probe would cost a second."""

CAUTION = 12
"""The observer's own session must have lasted for a twelfth of the lease, 5 s of 60, before what it sees counts: after
a restart of the server everybody gets time to return."""


@frozen
class Probe:
    """What one look at a worker showed."""

    worker_id: int
    session: int
    ended: bool
    free: bool
    overdue: bool


@define
class Suspicion:
    """Whose lock was found free, in which session, and when first: the rule of two probes."""

    suspects: dict[int, tuple[int, float]] = field(factory=dict)

    def judge(self, probes: Iterable[Probe], now: float, *, trusted: bool) -> list[Probe]:
        """Who is dead. `trusted`: the observer's own session is old enough for what it sees to count.

        After a while without a server every lease is over; whoever is back first must not bury the others for it.
        """
        probes = [p for p in probes if trusted]
        free = {p.worker_id: p for p in probes if p.free}
        self.suspects = {worker: self._since(worker, probe.session, now) for worker, probe in free.items()}
        return [p for p in probes if not p.ended and (p.overdue or self._proven(p, now))]

    def signs(self, workers: Iterable[int], now: float) -> list[float]:
        """When each of them was first seen to be dead."""
        return [self.suspects.get(worker, (0, now))[1] for worker in workers]

    def _since(self, worker: int, session: int, now: float) -> tuple[int, float]:
        known = self.suspects.get(worker)
        return known if known is not None and known[0] == session else (session, now)

    def _proven(self, probe: Probe, now: float) -> bool:
        known = self.suspects.get(probe.worker_id)
        return known is not None and now - known[1] >= PROBE_EVERY


class Reaper:
    """`needed` is set by whoever sees that other workers hold claims."""

    def __init__(
        self,
        session: Session,
        link: Link,
        *,
        lease_in: timedelta = queue.LEASE_IN,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.session = session
        self.link = link
        self.lease_in = lease_in
        self.unbroken_for = lease_in.total_seconds() / CAUTION
        self.clock = clock
        self.needed = asyncio.Event()
        self._locked_in: float | None = None
        """The session that has the lock of the watch; another session means that it is gone."""
        self._seen_in = 0.0
        self._looking_since: float | None = None
        """Since when no look has failed: a pooler keeps our connection through an outage of the server."""
        self._suspicion = Suspicion()

    async def step(self) -> None:
        """One look, a second after the last."""
        await self.needed.wait()
        await self.look()
        if self.needed.is_set():
            await asyncio.sleep(NEXT_PROBE * self._share())

    async def look(self) -> None:
        """Tries for the watch; who has it probes, buries and reclaims."""
        try:
            async with self.session.use() as conn:
                probes = await self._probe(conn)
            if probes:
                await self._bury_and_reclaim(probes)
        except LinkLost as error:
            self._looking_since = None
            log.info("watch_interrupted", reason=str(error))

    def _share(self) -> float:
        """Many who look each do it less often."""
        if self.session.lease_only:
            return random.uniform(1.0, 3.0)
        return 1.0 if self._locked_in else random.uniform(0.8, 1.0)

    async def _probe(self, conn: Connection) -> list[Probe]:
        if not self.session.lease_only and not await self._may_watch(conn):
            self._suspicion = Suspicion()
            return []
        rows = await conn.fetch(queue.sql.probe, self.session.worker, self.lease_in, timeout=5)
        self._looking_since = self._looking_since or self.clock()
        if not rows:
            await self._leave_watch(conn)
            self._stand_down()
        return [Probe(*row) for row in rows]

    async def _may_watch(self, conn: Connection) -> bool:
        """Who has the lock watches; who sees that its holder does not (it may hang), watches too."""
        if self._seen_in != self.session.since:
            self._seen_in = self.session.since
            self._suspicion = Suspicion()
        if self._locked_in == self.session.since:
            return True
        row = await fetch_one(conn, queue.sql.try_watch, self.session.worker, timeout=5)
        self._locked_in = self.session.since if row["locked"] else None
        if not row["needed"]:
            await self._leave_watch(conn)
            self._stand_down()
            return False
        return bool(row["locked"] or not row["watched"])

    async def _leave_watch(self, conn: Connection) -> None:
        if self._locked_in is not None:
            self._locked_in = None
            await conn.fetchval(queue.sql.leave_watch, timeout=5)

    def _stand_down(self) -> None:
        """Nobody holds anything. What the others have deferred or given back is for every worker to know of."""
        self.needed.clear()
        self._looking_since = None
        self.session.wake.set()

    async def _bury_and_reclaim(self, probes: list[Probe]) -> None:
        now = self.clock()
        since = self.session.since
        if self.session.lease_only:
            since = max(since, self._looking_since or now)
            probes = [evolve(probe, free=False) for probe in probes]
        dead = self._suspicion.judge(probes, now, trusted=now - since >= self.unbroken_for)
        orphans = any(p.ended for p in probes)
        signs = self._suspicion.signs([p.worker_id for p in dead], now)
        for probe in dead:
            async with self.link.use() as conn:
                buried = await conn.fetchval(queue.sql.bury, probe.worker_id, probe.session, self.lease_in, timeout=10)
            orphans = orphans or buried
            if buried:
                log.warning("worker_buried", worker=probe.worker_id, overdue=probe.overdue)
        if orphans:
            await self._reclaim()
            for seen_at in signs:
                meters.RECOVERY.observe(self.clock() - seen_at)

    async def _reclaim(self) -> None:
        async with self.link.use() as conn:
            claims = await conn.fetch(queue.sql.orphaned, timeout=10)
        rows = 0
        for campaign_id, claim_id in claims:
            async with self.link.use() as conn:
                try:
                    rows += await conn.fetchval(queue.sql.reclaim, campaign_id, claim_id, timeout=30)
                except asyncpg.PostgresError as error:  # one that is stuck must not hold up the others
                    if isinstance(error, GONE) and not isinstance(error, asyncpg.LockNotAvailableError):
                        raise
                    log.error("claim_not_reclaimed", claim=str(claim_id), reason=first_line(error))
        log.warning("claims_reclaimed", claims=len(claims), rows=rows)
        async with self.link.use() as conn:
            await conn.execute(queue.sql.wake)
