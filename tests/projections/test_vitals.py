"""How an installation does: what is looked at, what it costs, and what counts as stuck."""

import re
from datetime import timedelta

import pytest
from attrs import evolve

from postledger.database import Connection, Database
from postledger.projections import vitals
from postledger.projections.vitals import Queue, Vitals, cause_of, stuck
from tests import campaigns
from tests.clock import NOON, set_clock, stop_clock

QUIET = Vitals(1, 0, 0.0, 0.0, {}, (), 1, 0, 0, 0, 0, 0.0, 0.0, 0, 0)
SENDING = Queue(1, "sending", None, None, None, 5, 0, 0, 0, 0, 0, 0, 300.0, 300.0, None)


@pytest.mark.parametrize(
    ("queue", "workers", "cause"),
    [
        (SENDING, 0, "no worker is running"),
        (SENDING, 1, "see what the workers log"),
        (evolve(SENDING, still_for=3.0), 0, None),
        (evolve(SENDING, still_for=None), 1, "due for 300 s"),
        (evolve(SENDING, due_for=-20.0), 0, None),
        (evolve(SENDING, due_for=None), 0, None),
        (evolve(SENDING, one_each=3600.0), 1, None),
        (evolve(SENDING, one_each=3600.0, due_for=8000.0, still_for=8000.0), 1, "due for 8000 s"),
        (evolve(SENDING, status="paused", pause_reason="operator"), 0, None),
        (evolve(SENDING, status="paused", pause_reason="provider_auth"), 1, "paused, provider_auth, until somebody"),
        (
            evolve(SENDING, status="paused", pause_reason="provider_quota", resume_in=59.6),
            1,
            "provider_quota, for 60 s",
        ),
        (evolve(SENDING, status="scheduled", late=-5.0), 0, None),
        (evolve(SENDING, status="scheduled", late=90.0), 0, "should have started 90 s ago; no worker"),
    ],
)
def test_what_counts_as_stuck(queue: Queue, workers: int, cause: str | None):
    found = cause_of(queue, evolve(QUIET, workers=workers))
    assert (found is None) if cause is None else (cause in (found or ""))


async def test_a_fresh_installation_is_well(app: Connection):
    signs = await vitals.read(app, timeout=5)
    assert (signs.workers, signs.claims, signs.in_flight, signs.queues) == (0, 0, 0, [])
    assert signs.behind == dict.fromkeys(signs.behind, 0)
    assert signs.unsealed == 1  # Migrated
    assert stuck(signs) == []


async def test_a_campaign_under_way(app: Connection, owner: Connection):
    await stop_clock(owner)
    campaign = await campaigns.started(app, 5)
    worker = await campaigns.enlist(app)
    await app.fetchval("SELECT pg_advisory_lock(lock_key('worker', $1))", worker)
    await app.fetchval("SELECT relock_worker($1, false)", worker)
    await campaigns.claim(app, campaign, worker, 2)
    await app.fetchval("SELECT seal()")
    while await app.fetchval("SELECT follow_progress(1000)"):
        pass
    await set_clock(owner, NOON + timedelta(seconds=90))
    signs = await vitals.read(app, timeout=5)
    (queue,) = signs.queues
    assert (queue.pending, queue.sending, queue.due_for, queue.still_for) == (3, 2, 90.0, 90.0)
    assert (signs.workers, signs.deaf, signs.missing) == (1, 0, 0)
    assert (signs.claims, signs.in_flight, signs.claimed_for) == (1, 2, 90.0)
    assert (signs.unsealed, signs.unsealed_for) == (0, 0.0)
    assert [one.cause for one in stuck(signs)] == [
        "rows are due for 90 s and nothing happens; see what the workers log"
    ]
    await app.fetchval("SELECT pg_advisory_unlock(lock_key('worker', $1))", worker)
    assert (await vitals.read(app, timeout=5)).missing == 1


async def test_a_worker_behind_a_pooler_is_there_by_its_lease(app: Connection, owner: Connection):
    await stop_clock(owner)
    worker = await campaigns.enlist(app)
    await app.fetchval("SELECT relock_worker($1, true)", worker)
    signs = await vitals.read(app, timeout=5)
    assert (signs.workers, signs.deaf) == (1, 1)
    await set_clock(owner, NOON + timedelta(seconds=61))
    assert (await vitals.read(app, timeout=5)).missing == 1


async def test_what_is_in_no_block(app: Connection, owner: Connection):
    await stop_clock(owner)
    await app.fetchval("SELECT seal()")
    await campaigns.started(app, 20)
    await set_clock(owner, NOON + timedelta(seconds=7))
    signs = await vitals.read(app, timeout=5)
    assert signs.unsealed == 23  # Drafted, RecipientsAdded, Started
    assert signs.unsealed_for == 7.0
    await app.fetchval("SELECT seal()")
    signs = await vitals.read(app, timeout=5)
    assert (signs.unsealed, signs.unsealed_for) == (0, 0.0)
    assert signs.behind["progress"] == 2


async def test_who_holds_a_snapshot_is_seen_with_the_owners_eyes(app: Connection, database: str):
    async with Database(database).connection() as other:
        transaction = other.transaction(isolation="repeatable_read")
        await transaction.start()
        await other.fetchval("SELECT count(*) FROM campaigns")
        seen = "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND datname = current_database()"
        assert await app.fetchval(seen) == 0  # by the role of the app
        signs = await vitals.read(app, timeout=5)
        assert signs.snapshot_for > 0
        await transaction.rollback()
    assert (await vitals.read(app, timeout=5)).hidden == 0


@pytest.mark.parametrize("name", ["campaigns", "now", "followers", "claims"])
async def test_no_look_counts_what_may_be_millions(app: Connection, owner: Connection, name: str):
    """Never-analysed tables of some size: the queue and the log are touched by their indexes, a few rows each."""
    campaign = await campaigns.started(app, 3000)
    await app.fetchval("SELECT seal()")
    while await app.fetchval("SELECT follow_progress(100000)"):
        pass
    await owner.execute("ANALYZE")
    statement = getattr(vitals.sql, name)
    plan = "\n".join(row[0] for row in await app.fetch(f"EXPLAIN (ANALYZE, TIMING off, SUMMARY off) {statement}"))
    read = [int(rows) for table, rows in re.findall(r"(recipient_queue|events)\S* .*?actual rows=(\d+)", plan)]
    assert all(rows <= 1 for rows in read), plan
    assert "Seq Scan on recipient_queue" not in plan
    assert campaign
