"""A log that is sound verifies, at rest and at work."""

import asyncio

import pytest

from postledger.database import Database
from postledger.errors import NotFoundError
from postledger.ledger.sealing import seal
from postledger.projections.verify import Verification, verify
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, released, sent, settle, started, unknown

from .healthy import varied


async def test_a_campaign_in_which_everything_happened_is_equal(app):
    campaign = await varied(app)
    statuses = await app.fetch("SELECT DISTINCT status::text FROM recipient_queue")
    assert {row[0] for row in statuses} == {"pending", "sending", "sent", "failed", "skipped", "unknown"}
    assert await verify(app, campaign) == Verification(True, 44, 44, 0, [])


async def test_all_campaigns_are_verified_with_contacts_and_the_system(app):
    await varied(app)
    await started(app, 5, "summer", kind="standing")
    await campaigns.draft(app, "autumn")
    assert await verify(app, None) == Verification(True, 49, 49, 0, [])


async def test_events_in_no_block_are_counted_and_no_difference(app):
    campaign = await varied(app)
    assert (await verify(app, campaign)).unsealed is None  # there are no blocks: nobody is behind
    await seal(app)
    assert await verify(app, None) == Verification(True, 44, 44, 0, [], 0)
    other = await started(app, 5, "summer")
    assert [(await verify(app, which)).unsealed for which in (None, campaign, other)] == [9, 0, 9]
    assert (await verify(app, other)).as_json() == {
        "equal": True,
        "checked": 5,
        "total": 5,
        "differences": [],
        "unsealed": 9,
    }


async def test_an_empty_database_is_equal(app):
    assert await verify(app, None) == Verification(True, 0, 0, 0, [])


async def test_a_campaign_that_nothing_knows_is_not_equal_but_not_found(app):
    with pytest.raises(NotFoundError, match="no campaign has the id 77"):
        await verify(app, 77)


async def test_cancelled_and_completed_campaigns_are_equal(app):
    cancelled, completed = await started(app, 5, "first"), await started(app, 3, "second")
    worker = await enlist(app)
    rows = (await claim(app, cancelled, worker, 2)).rows
    await campaigns.change(app, cancelled, "Cancelled")
    assert (await claim(app, cancelled, worker)).cancelled == 3
    await settle(app, cancelled, [sent(rows[0]), unknown(rows[1])])
    await settle(app, completed, [sent(row) for row in (await claim(app, completed, worker)).rows])
    for campaign in (cancelled, completed):
        assert await app.fetchval("SELECT finish_campaign($1)", campaign)
    assert [row[0] for row in await app.fetch("SELECT status::text FROM campaigns ORDER BY id")] == [
        "cancelled",
        "completed",
    ]
    assert (await verify(app, None)).equal


async def test_the_auditor_may_verify_without_seeing_a_secret(app, database):
    await varied(app)
    async with Database(database).connection(role="postledger_audit") as auditor:
        assert (await verify(auditor, None)).equal


async def test_it_is_equal_at_every_moment_while_workers_run(app, database):
    campaign = await started(app, 600, attempts=3)
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(_work(database, campaign)) for _ in range(3)]
        audits = 0
        while not all(worker.done() for worker in workers):
            assert (await verify(app, campaign)).differences == []
            audits += 1
    assert audits > 5
    assert await app.fetchval("SELECT count(*) FROM recipient_queue WHERE status IN ('sent', 'failed')") == 600
    assert (await verify(app, None)).equal


async def _work(database: str, campaign: int) -> None:
    """A worker that forgets and repeats a good deal, until nothing is open."""
    outcomes = (sent, deferred, sent, released, unknown, sent, failed)
    async with Database(database).connection() as conn:
        worker, n = await enlist(conn), 0
        while True:
            answer = await claim(conn, campaign, worker, 7)
            batch = [outcomes[(n := n + 1) % len(outcomes)](row) for row in answer.rows]
            if batch:
                await settle(conn, campaign, batch)
                await settle(conn, campaign, batch[:2])
            elif not await conn.fetchval(_OPEN, campaign):
                return


_OPEN = "SELECT EXISTS (SELECT FROM recipient_queue WHERE campaign_id = $1 AND status IN ('pending', 'sending'))"
