"""Everybody at once: nobody is queued, claimed or started twice, and nobody locks anybody out."""

import asyncio
import random
import uuid
from collections import Counter
from contextlib import AsyncExitStack

import asyncpg
import pytest

from postledger.database import Database
from postledger.projections.verify import verify
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, people, released, sent, settle, stage, started, unknown

OPEN = "SELECT count(*) FROM recipient_queue WHERE status IN ('pending', 'sending')"


@pytest.fixture
async def many(database):
    """Eight connections."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(Database(database).connection()) for _ in range(8)]


async def test_the_same_file_twice_at_once_queues_everybody_once(app, many):
    campaign = await campaigns.draft(app)
    imports = [await stage(app, people(300)), await stage(app, people(300)[::-1])]
    calls = [
        conn.fetchrow("SELECT * FROM enqueue_import($1, $2)", campaign, import_id)
        for conn, import_id in zip(many, imports, strict=False)
    ]
    counts = await asyncio.gather(*calls)
    assert sorted(count["accepted"] for count in counts) == [0, 300]
    assert sum(count["duplicate_key"] + count["duplicate_address"] for count in counts) == 300
    assert await app.fetchval("SELECT count(*) FROM recipient_queue") == 300
    assert (await verify(app, campaign)).differences == []


async def test_one_import_twice_at_once_is_used_once(app, many):
    campaign, import_id = await campaigns.draft(app), await stage(app, people(50))
    calls = [conn.fetchrow("SELECT * FROM enqueue_import($1, $2)", campaign, import_id) for conn in many]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    refused = [answer.sqlstate for answer in answers if isinstance(answer, asyncpg.PostgresError)]
    assert refused == ["PL007"] * 7
    assert await app.fetchval("SELECT count(*) FROM recipient_queue") == 50


async def test_overlapping_files_for_other_campaigns_do_not_meet(app, many):
    ids = [await campaigns.draft(app, f"c{n}") for n in range(8)]
    await asyncio.gather(
        *(campaigns.enqueue(conn, campaign, people(100)) for conn, campaign in zip(many, ids, strict=True))
    )
    assert await app.fetchval("SELECT count(*) FROM recipient_queue") == 800


@pytest.mark.parametrize("event", ["Started", "Cancelled"])
async def test_a_double_click_does_it_once(app, many, event):
    campaign = await campaigns.draft(app)
    calls = [campaigns.change(conn, campaign, event) for conn in many]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers.count(2) == 1
    assert [getattr(answer, "sqlstate", None) for answer in answers if answer != 2] == ["PL004"] * 7


async def test_the_same_name_twice_at_once_is_one_campaign(app, many):
    answers = await asyncio.gather(*(campaigns.draft(conn) for conn in many), return_exceptions=True)
    assert sum(isinstance(answer, asyncpg.UniqueViolationError) for answer in answers) == 7
    assert (await verify(app, None)).differences == []


async def test_eight_claimers_take_each_row_once(app, many):
    campaign = await started(app, 400)
    taken = Counter()

    async def work(conn):
        worker = await enlist(conn)
        while True:
            answer = await claim(conn, campaign, worker, 7)
            taken.update(row.delivery_id for row in answer.rows)
            if not answer.rows and not answer.busy:
                return

    await asyncio.gather(*map(work, many))
    assert len(taken) == 400
    assert set(taken.values()) == {1}
    assert (await verify(app, campaign)).differences == []


async def test_one_that_is_due_next_year_keeps_nobody_waiting(app, database):
    """Three hundred messages to one address, twelve who claim, and one message that is not due for a long time."""
    campaign = await campaigns.draft(app, kind="standing", name="receipts")
    await campaigns.change(app, campaign, "Started")
    query = "SELECT enqueue('receipts', 'ann@example.org', 'key ' || n) FROM generate_series(1, 300) AS n"
    await app.execute(query)
    later = "SELECT enqueue('receipts', 'ann@example.org', 'later', due_at => clock() + interval '1 year')"
    await app.execute(later)
    taken = Counter()

    async def work(conn):
        worker = await enlist(conn)
        while (answer := await claim(conn, campaign, worker, 5)).rows or answer.busy:
            taken.update(row.delivery_id for row in answer.rows)
            if answer.rows:
                await settle(conn, campaign, [sent(row) for row in answer.rows])
        return answer.due_in

    async with AsyncExitStack() as stack:
        conns = [await stack.enter_async_context(Database(database).connection()) for _ in range(12)]
        due_in = await asyncio.gather(*map(work, conns))
    assert len(taken) == 300
    assert set(taken.values()) == {1}
    assert all(wait is not None and wait.days > 360 for wait in due_in)
    assert (await verify(app, campaign)).differences == []


async def test_one_claim_asked_for_eight_times_at_once_is_one_claim(app, many):
    campaign, worker, claim_id = await started(app, 40), await enlist(app), uuid.uuid4()
    calls = [claim(conn, campaign, worker, 5, claim_id) for conn in many]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    answered = {
        tuple(row.delivery_id for row in answer.rows) for answer in answers if not isinstance(answer, Exception)
    }
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert all(isinstance(error, asyncpg.UniqueViolationError) for error in refused)
    again = await claim(app, campaign, worker, 5, claim_id)
    assert answered == {tuple(row.delivery_id for row in again.rows)}
    assert await app.fetchval("SELECT count(*) FROM recipient_queue WHERE status = 'sending'") == 5
    assert (await verify(app, campaign)).differences == []


async def test_suppressing_from_all_sides_leaves_one_suppression(app, many):
    addresses = [f"p{n}@example.org" for n in range(40)]

    async def suppress(conn, order):
        for address in order:
            await conn.execute("SELECT suppress($1, 'operator', 'test')", address)

    await asyncio.gather(*(suppress(conn, random.Random(n).sample(addresses, 40)) for n, conn in enumerate(many)))
    assert await app.fetchval("SELECT count(*) FROM suppressions") == 40
    assert (await verify(app, None)).differences == []


async def test_everything_at_once_loses_nothing_and_never_locks_up(app, many):
    """Workers, one of which keeps dying, an operator, an importer and a watcher, all at the same campaign."""
    campaign = await started(app, 300, attempts=3)
    await campaigns.draft(app, "other")
    done = asyncio.Event()
    outcomes = (sent, sent, deferred, released, unknown, failed, lambda row: failed(row, suppress="invalid_recipient"))

    async def work(conn, seed):
        dice, worker = random.Random(seed), await enlist(conn)
        while not done.is_set():
            answer = await claim(conn, campaign, worker, dice.randint(1, 9))
            batch = [dice.choice(outcomes)(row) for row in answer.rows]
            dice.shuffle(batch)
            if batch:
                await settle(conn, campaign, batch[: dice.randint(1, len(batch))])
                await settle(conn, campaign, batch)
            await asyncio.sleep(0)

    async def die(conn):
        while not done.is_set():
            worker = await enlist(conn)
            rows = (await claim(conn, campaign, worker, 5)).rows
            await conn.execute("SELECT bury_worker($1, 1, '1 minute')", worker)
            await settle(conn, campaign, [sent(row) for row in rows[:2]]) if rows else None
            for row in await conn.fetch("SELECT campaign_id, claim_id FROM orphaned_claims()"):
                await conn.execute("SELECT reclaim($1, $2)", *row)
            await settle(conn, campaign, [sent(row) for row in rows[:4]]) if rows else None

    async def operate(conn):
        for _ in range(15):
            await campaigns.change(conn, campaign, "Paused")
            await conn.execute("SELECT requeue($1, NULL, 'x', 'y')", campaign)
            await campaigns.change(conn, campaign, "Resumed")
            await conn.execute("SELECT requeue($1, NULL, 'x', 'y')", campaign)

    async def add(conn):
        for n in range(10):
            await campaigns.enqueue(conn, campaign, people(30, first=290 + 20 * n))

    async def look(conn):
        while not done.is_set():
            assert (await verify(conn, None)).differences == []

    async def finish(conn):
        while not done.is_set():
            if await conn.fetchval("SELECT finish_campaign($1)", campaign):
                done.set()
            await asyncio.sleep(0.01)

    busy = [operate(many[0]), add(many[1])]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for conn, seed in zip(many[2:5], range(3), strict=True):
            group.create_task(work(conn, seed))
        for task in (die(many[5]), look(many[6])):
            group.create_task(task)
        await asyncio.gather(*busy)
        group.create_task(finish(many[7]))
    assert await app.fetchval(OPEN) == 0
    assert await app.fetchval("SELECT count(*) FROM claims") == 0
    assert await app.fetchval("SELECT count(*) FROM recipient_queue") == 499
    assert (await verify(app, None)).differences == []
