"""The first follower: as of each block it says of every campaign what its rows said then."""

import asyncio
from datetime import timedelta

import pytest

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal
from postledger.projections import progress
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, sent, settle, started, unknown

from .healthy import varied

DIFFERENT = """
    SELECT v.campaign_id FROM campaign_progress v LEFT JOIN progress p USING (campaign_id)
    WHERE v.audience > 0 AND (v.pending, v.sending, v.sent, v.failed, v.skipped, v.cancelled, v.unknown)
        IS DISTINCT FROM (p.pending, p.sending, p.sent, p.failed, p.skipped, p.cancelled, p.unknown)
"""
COUNTS = ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")


async def catch_up(conn: Connection, limit: int = 1000) -> int:
    pages = 0
    while await conn.fetchval("SELECT follow_progress($1)", limit):
        pages += 1
    return pages


@pytest.mark.parametrize("limit", [1, 2, 7, 1000])
async def test_it_is_what_the_rows_say_by_pages_of_any_size(app: Connection, limit: int) -> None:
    await varied(app)
    await varied(app, "other")
    await campaigns.draft(app, "empty")
    await seal(app)
    pages = await catch_up(app, limit)
    assert pages == -(-await app.fetchval("SELECT count(*) FROM events") // limit)
    assert await app.fetch(DIFFERENT) == []


async def test_it_is_right_at_every_block(app: Connection) -> None:
    campaign = await started(app, 30, unknown="resend", attempts=2)
    worker = await enlist(app)
    for makes in ((sent, deferred, failed), (unknown, sent, failed), (unknown, unknown, sent)):
        rows = (await claim(app, campaign, worker, 12)).rows
        await seal(app)
        await catch_up(app)
        assert await app.fetch(DIFFERENT) == []
        await settle(app, campaign, [makes[n % 3](row) for n, row in enumerate(rows)])
        await settle(app, campaign, [sent(row) for row in rows[3:5]])  # late, and applied where it may be
        await seal(app)
        await catch_up(app, 5)
        assert await app.fetch(DIFFERENT) == []
    await app.execute("SELECT requeue($1, NULL, 'again', 'operator')", campaign)
    await campaigns.change(app, campaign, "Cancelled")
    await claim(app, campaign, worker, 100)
    await seal(app)
    await catch_up(app)
    assert await app.fetch(DIFFERENT) == []


async def test_what_is_not_sealed_is_not_counted(app: Connection) -> None:
    campaign = await started(app, 3)
    assert await catch_up(app) == 0
    assert await progress.read(app, campaign) is None
    await seal(app)
    await campaigns.enqueue(app, campaign, campaigns.people(2, first=10))
    await catch_up(app)
    counted = await progress.read(app, campaign)
    assert counted is not None
    assert [getattr(counted, name) for name in COUNTS] == [3, 0, 0, 0, 0, 0, 0]


async def test_first_and_last_times_and_the_minutes(app: Connection, owner: Connection) -> None:
    campaign = await started(app, 4)
    worker = await enlist(app)
    times = []
    for minutes in (0, 0, 1, 3):
        [row] = (await claim(app, campaign, worker, 1)).rows
        clock = f"SELECT timestamptz '2030-01-01 12:00:30Z' + interval '{minutes} min'"
        await owner.execute(f"CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql AS $${clock}$$")
        await settle(app, campaign, [sent(row)])
        times.append(await app.fetchval("SELECT max(at) FROM events WHERE type = 'Sent'"))
    await seal(app)
    await catch_up(app, 2)
    counted = await progress.read(app, campaign)
    assert counted is not None
    assert (counted.first_sent_at, counted.last_sent_at, counted.last_at) == (times[0], times[3], times[3])
    assert counted.first_at == await app.fetchval("SELECT min(at) FROM events WHERE delivery_id > 0")
    noon = times[0] - timedelta(seconds=30)
    minute = timedelta(minutes=1)
    assert await progress.minutes(app, campaign) == [(noon + 3 * minute, 1), (noon + minute, 1), (noon, 2)]
    assert await progress.minutes(app, campaign, limit=1) == [(noon + 3 * minute, 1)]
    assert counted.block_no == await app.fetchval("SELECT max(block_no) FROM blocks")


async def test_one_counts_at_a_time(app: Connection, database: str) -> None:
    await started(app, 5)
    await seal(app)
    async with Database(database).connection() as other:
        async with other.transaction():
            assert await other.fetchval("SELECT follow_progress(3)") == 3
            assert await progress.follow(app) is None
        assert await progress.follow(app) == await app.fetchval("SELECT count(*) FROM events") - 3
    assert await app.fetch(DIFFERENT) == []


async def test_a_page_that_is_undone_is_counted_again(app: Connection) -> None:
    await varied(app)
    await seal(app)
    for _ in range(3):
        transaction = app.transaction()
        await transaction.start()
        assert await app.fetchval("SELECT follow_progress(50)") == 50
        await transaction.rollback()
    await catch_up(app, 50)
    assert await app.fetch(DIFFERENT) == []


async def test_with_nothing_to_count_it_stands_at_the_end(app: Connection, owner: Connection) -> None:
    """Also where the last events are none of its own, or are gone."""
    await app.execute("SELECT suppress('ann@example.org', 'operator', 'test')")
    await seal(app)
    await catch_up(app, 1)
    head = await app.fetchrow("SELECT block_no, upper(positions) - 1 FROM blocks ORDER BY block_no DESC LIMIT 1")
    at = "SELECT block_no, position FROM followers WHERE name = 'progress'"
    assert tuple(await app.fetchrow(at)) == tuple(head)
    await app.execute("SELECT suppress('bob@example.org', 'operator', 'test')")
    await seal(app)
    await owner.execute(
        "ALTER TABLE events_1 DISABLE TRIGGER USER; ALTER TABLE events DISABLE TRIGGER USER; DELETE FROM events"
    )
    assert await progress.follow(app) == 0
    assert (await app.fetchrow(at))["block_no"] == head["block_no"] + 1


async def test_rebuilt_from_nothing_it_is_the_same(app: Connection, owner: Connection, database: str) -> None:
    """Whatever has become of it, and while others look."""
    campaign = await varied(app)
    await seal(app)
    await catch_up(app)
    before = await everything(app)
    spoilt = "UPDATE progress SET sent = 7, first_at = clock(); UPDATE progress_minutes SET sent = sent + 1"
    await owner.execute(f"{spoilt}; INSERT INTO progress (campaign_id, sent, first_at) VALUES (99, 1, clock())")
    await owner.execute("INSERT INTO progress_minutes VALUES (99, clock(), 1)")
    assert await progress.rebuild(app) == await app.fetchval("SELECT count(*) FROM events")
    assert await everything(app) == before
    assert await progress.read(app, 99) is None
    assert await progress.minutes(app, 99) == []
    async with Database(database).connection() as other, other.transaction():
        assert await other.fetchval("SELECT follow_progress(3)") == 0
        rebuilding = asyncio.create_task(progress.rebuild(app))
        assert await progress.read(other, campaign) is not None
    assert await rebuilding > 0
    assert await everything(app) == before


async def everything(conn: Connection) -> list[object]:
    ids = [row[0] for row in await conn.fetch("SELECT id FROM campaigns ORDER BY 1")]
    return [(await progress.read(conn, one), await progress.minutes(conn, one)) for one in ids]
