"""Workers that die, campaigns that end and begin again, and what is due next."""

from datetime import timedelta

import pytest

from postledger.database import Database
from postledger.ledger.queue import Settled, Work, ask_permit, next_work
from postledger.projections.verify import verify
from tests import campaigns
from tests.campaigns import WITHIN, claim, deferred, enlist, failed, people, released, sent, settle, started, unknown
from tests.clock import NOON, set_clock, stop_clock

LEASE = timedelta(seconds=60)
SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)

BURY = "SELECT bury_worker($1, $2, $3)"
LOCK = "SELECT pg_advisory_lock(lock_key('worker', $1))"
STATUSES = "SELECT status::text FROM recipient_queue WHERE campaign_id = $1 ORDER BY delivery_id"


@pytest.fixture(autouse=True)
async def all_is_well(app, owner):
    await stop_clock(owner)
    yield
    assert (await verify(app, None)).differences == []


async def statuses(conn, campaign):
    return [row[0] for row in await conn.fetch(STATUSES, campaign)]


async def lose(conn, worker):
    """Declares a worker dead and takes its rows back; how many."""
    assert await conn.fetchval(BURY, worker, 1, LEASE)
    orphans = await conn.fetch("SELECT campaign_id, claim_id FROM orphaned_claims()")
    return sum([await conn.fetchval("SELECT reclaim($1, $2)", *orphan) for orphan in orphans])


# Deaths.


@pytest.mark.parametrize(
    ("options", "status", "attempt"),
    [({"unknown": "hold"}, "unknown", 1), ({"attempts": 2}, "pending", 1), ({"attempts": 1}, "failed", 1)],
    ids=["hold", "resend", "exhausted"],
)
async def test_a_dead_workers_rows_go_by_the_campaigns_policy(app, options, status, attempt):
    campaign = await started(app, 2, **options)
    worker = await enlist(app)
    await claim(app, campaign, worker)
    assert await lose(app, worker) == 2
    assert await statuses(app, campaign) == [status] * 2
    assert await app.fetchval("SELECT min(attempt) FROM recipient_queue") == attempt


async def test_in_a_cancelled_campaign_they_stay_unknown(app):
    campaign, worker = await started(app, 2), await enlist(app)
    row, _ = (await claim(app, campaign, worker)).rows
    await campaigns.change(app, campaign, "Cancelled")
    await settle(app, campaign, [unknown(row)])
    assert await lose(app, worker) == 1
    assert await statuses(app, campaign) == ["unknown", "unknown"]


async def test_a_worker_lives_while_it_holds_its_lock_or_until_its_lease_is_over(app, owner, database):
    worker = await enlist(app)
    async with Database(database).connection() as its_own:
        await its_own.execute(LOCK, worker)
        assert not await app.fetchval(BURY, worker, 1, LEASE)
        await set_clock(owner, NOON + LEASE)
        assert not await app.fetchval(BURY, worker, 1, LEASE)
        await set_clock(owner, NOON + LEASE + SECOND)
        assert not await app.fetchval(BURY, worker, 2, LEASE)  # somebody saw another session of it
        assert await app.fetchval(BURY, worker, 1, LEASE)
    assert await app.fetchval(BURY, worker, 1, LEASE)  # and it stays buried


async def test_a_free_lock_means_nothing_where_only_the_lease_counts(app, owner):
    worker = await enlist(app)
    assert await app.fetchval("SELECT relock_worker($1, true)", worker) == 2
    assert not await app.fetchval(BURY, worker, 2, LEASE)
    await set_clock(owner, NOON + LEASE + SECOND)
    assert await app.fetchval(BURY, worker, 2, LEASE)


async def test_a_heartbeat_renews_the_lease(app, owner):
    worker = await enlist(app)
    await set_clock(owner, NOON + LEASE)
    permit = await ask_permit(app, worker, 1, [], [], beat=True, now=0.0, timeout=WITHIN)
    await set_clock(owner, NOON + LEASE + SECOND)
    assert permit.alive
    assert await app.fetchval("SELECT seen_at FROM workers") == NOON + LEASE


async def test_who_comes_back_after_its_burial_has_to_enlist_anew(app):
    worker = await enlist(app)
    assert await app.fetchval("SELECT relock_worker($1, false)", worker) == 2
    assert await app.fetchval(BURY, worker, 2, LEASE)
    assert await app.fetchval("SELECT relock_worker($1, false)", worker) is None
    assert not (await ask_permit(app, worker, 2, [], [], beat=True, now=0.0, timeout=WITHIN)).alive


async def test_a_watcher_sees_the_workers_that_hold_something(app, owner, database):
    campaign = await started(app, 4)
    watcher, free, alive, idle = [await enlist(app) for _ in range(4)]
    for worker in (watcher, free, alive):
        await claim(app, campaign, worker, 1)
    probe = "SELECT worker_id, session, ended, free, overdue FROM probe_workers($1, $2) ORDER BY 1"
    async with Database(database).connection() as its_own:
        await its_own.execute(LOCK, alive)
        assert [tuple(row) for row in await app.fetch(probe, watcher, LEASE)] == [
            (free, 1, False, True, False),
            (alive, 1, False, False, False),
        ]
        await set_clock(owner, NOON + LEASE + SECOND)
        assert [row["overdue"] for row in await app.fetch(probe, watcher, LEASE)] == [True, True]
        assert await app.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 1
    assert idle not in {row["worker_id"] for row in await app.fetch(probe, watcher, LEASE)}


async def test_what_a_leaving_worker_still_holds_is_taken_back_too(app):
    campaign, worker = await started(app, 2), await enlist(app)
    await claim(app, campaign, worker)
    await app.execute("SELECT leave_worker($1)", worker)
    assert len(await app.fetch("SELECT * FROM orphaned_claims()")) == 1


async def test_the_late_words_of_two_claims_are_both_kept(app):
    campaign = await started(app, 1)
    held = []
    for _ in range(2):
        worker = await enlist(app)
        held += (await claim(app, campaign, worker)).rows
        await lose(app, worker)
    [last] = (await claim(app, campaign, await enlist(app))).rows
    await settle(app, campaign, [sent(last)])
    assert [await settle(app, campaign, [failed(row)]) for row in held] == [Settled(evidence=1)] * 2
    assert await settle(app, campaign, [failed(row) for row in held]) == Settled(repeated=2)


# Endings.


async def test_a_campaign_is_not_over_while_something_is_held(app):
    campaign = await started(app, 2)
    first, second = (await claim(app, campaign, await enlist(app))).rows
    await settle(app, campaign, [sent(first)])
    assert not await app.fetchval("SELECT finish_campaign($1)", campaign)
    await settle(app, campaign, [sent(second)])
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    body = await app.fetchval("SELECT body FROM events WHERE type = 'Completed'")
    assert body == {"counts": {"sent": 2}}


async def test_a_campaign_without_people_is_over_at_once(app):
    campaign = await started(app, 0)
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)


async def test_a_standing_campaign_is_never_over(app):
    campaign = await started(app, 0, kind="standing")
    assert not await app.fetchval("SELECT finish_campaign($1)", campaign)


async def test_a_retry_opens_a_completed_campaign_again(app):
    campaign = await started(app, 3)
    rows = (await claim(app, campaign, await enlist(app))).rows
    await settle(app, campaign, [failed(row) for row in rows])
    await app.execute("SELECT suppress('p2@example.org', 'complained', 'test')")
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    assert await app.fetchval("SELECT requeue($1, NULL, 'asked for', 'operator')", campaign) == 2
    assert await statuses(app, campaign) == ["pending", "failed", "pending"]
    assert tuple(await app.fetchrow("SELECT status::text, finished_at FROM campaigns")) == ("sending", None)


async def test_a_retry_of_nobody_leaves_it_completed(app):
    campaign = await started(app, 1)
    await settle(app, campaign, [sent(row) for row in (await claim(app, campaign, await enlist(app))).rows])
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    assert await app.fetchval("SELECT requeue($1, NULL, 'asked for', 'operator')", campaign) == 0
    assert await app.fetchval("SELECT status::text FROM campaigns") == "completed"


async def test_new_people_open_a_completed_campaign_again_and_known_ones_do_not(app):
    campaign = await started(app, 2)
    await settle(app, campaign, [sent(row) for row in (await claim(app, campaign, await enlist(app))).rows])
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    await campaigns.enqueue(app, campaign, people(2))
    assert await app.fetchval("SELECT status::text FROM campaigns") == "completed"
    await campaigns.enqueue(app, campaign, people(3))
    assert tuple(await app.fetchrow("SELECT status::text, finished_at FROM campaigns")) == ("sending", None)


async def test_a_row_that_comes_back_into_a_cancelled_campaign_is_cancelled(app):
    campaign, worker = await started(app, 3), await enlist(app)
    first, second = (await claim(app, campaign, worker, 2)).rows
    await campaigns.change(app, campaign, "Cancelled")
    await settle(app, campaign, [released(first), deferred(second, HOUR)])
    assert not await app.fetchval("SELECT finish_campaign($1)", campaign)
    assert (await claim(app, campaign, worker)).cancelled == 3  # whether due or not
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    assert await statuses(app, campaign) == ["cancelled"] * 3


# What is next.


async def work(conn, worker, only=None):
    return await next_work(conn, worker, only, timeout=WITHIN)


def todo(campaigns=(), cancelled=(), due_in=None, finishable=(), *, watch=False, priorities=None):
    """Senders without a rate, nothing to be woken; what the test has appended nobody has sealed."""
    many = len(campaigns)
    more = (priorities or [0] * many, [None] * many, [], None, True)
    return Work([*campaigns], [*cancelled], due_in, [*finishable], watch, *more)


async def test_campaigns_with_due_rows_come_by_priority_then_age(app):
    worker, ids = await enlist(app), [await started(app, 1, name) for name in "abc"]
    await app.execute("UPDATE campaigns SET priority = 5 WHERE id = $1", ids[2])
    await campaigns.change(app, ids[1], "Paused")
    assert await work(app, worker) == todo([ids[2], ids[0]], priorities=[5, 0])
    assert await work(app, worker, ids[0]) == todo([ids[0]])


async def test_what_is_not_due_yet_says_when(app, owner):
    campaign, worker = await started(app, 2), await enlist(app)
    rows = (await claim(app, campaign, worker)).rows
    await settle(app, campaign, [deferred(rows[0], HOUR), released(rows[1], 2 * HOUR)])
    assert await work(app, worker) == todo(due_in=HOUR)
    assert (await claim(app, campaign, worker)).due_in == HOUR
    await set_clock(owner, NOON + HOUR)
    assert await work(app, worker) == todo([campaign])
    assert [row.delivery_id for row in (await claim(app, campaign, worker)).rows] == [rows[0].delivery_id]
    assert await work(app, worker) == todo(due_in=HOUR)


async def test_a_campaign_at_its_end_is_named_and_foreign_claims_are_watched(app):
    campaign, worker, other = await started(app, 1), await enlist(app), await enlist(app)
    [row] = (await claim(app, campaign, worker)).rows
    assert await work(app, worker) == todo()
    assert await work(app, other) == todo(watch=True)
    await settle(app, campaign, [sent(row)])
    assert await work(app, worker) == todo(finishable=[campaign])


async def test_a_cancelled_campaign_with_waiting_rows_is_named_apart(app):
    campaign, worker = await started(app, 1), await enlist(app)
    await campaigns.change(app, campaign, "Cancelled")
    assert await work(app, worker) == todo(cancelled=[campaign])
    await claim(app, campaign, worker)
    assert await work(app, worker) == todo(finishable=[campaign])
    assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    assert await work(app, worker) == todo()


async def test_how_long_a_delivery_has_been_tried_counts_from_its_first_claim(app, owner):
    campaign, worker = await started(app, 2), await enlist(app)
    rows = (await claim(app, campaign, worker)).rows
    assert [row.age for row in rows] == [None, None]
    await settle(app, campaign, [deferred(rows[0])])
    await campaigns.enqueue(app, campaign, people(3))
    await set_clock(owner, NOON + HOUR)
    ages = {row.key: row.age for row in (await claim(app, campaign, worker)).rows}
    assert ages == {"k1": HOUR, "k3": None}
