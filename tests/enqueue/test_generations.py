"""A standing campaign goes on in generations: one name, one set of keys, no message lost between two of them."""

import asyncio

import asyncpg
import pytest

from postledger.database import Database, close
from postledger.projections.verify import verify
from tests.campaigns import claim, enlist, enqueue, people, sent, settle
from tests.eventually import eventually

CALL = "SELECT postledger.enqueue('welcome', $1)"
KEYED = "SELECT postledger.enqueue('welcome', $1, key => $2)"


@pytest.fixture(autouse=True)
async def verified(app):
    yield
    assert (await verify(app, None)).differences == []


@pytest.fixture
async def other(database):
    """An application of its own."""
    conn = await asyncpg.connect(database, server_settings={"default_transaction_isolation": "read committed"})
    yield conn
    await conn.close()


async def roll(conn, campaign):
    return await conn.fetchval("SELECT roll_campaign($1)", campaign)


async def finish(conn, campaign):
    return await conn.fetchval("SELECT finish_campaign($1)", campaign)


async def drain(conn, campaign):
    taken = await claim(conn, campaign, await enlist(conn), 100)
    if taken.rows:
        await settle(conn, campaign, [sent(row) for row in taken.rows])
    return len(taken.rows)


async def test_new_messages_go_to_the_newest_and_the_old_one_ends_when_drained(app, welcome):
    await app.fetchval(CALL, "a@x.example")
    newer = await roll(app, welcome)
    await app.fetchval(CALL, "b@x.example")
    assert await app.fetch("SELECT campaign_id, email FROM recipients ORDER BY 1") == [
        (welcome, "a@x.example"),
        (newer, "b@x.example"),
    ]
    assert not await finish(app, welcome)
    assert await drain(app, welcome) == 1
    assert await finish(app, welcome)
    assert await drain(app, newer) == 1
    assert not await finish(app, newer)
    rows = await app.fetch("SELECT name, generation, kind, status::text FROM campaigns ORDER BY id")
    assert [tuple(row) for row in rows] == [
        ("welcome", 1, "standing", "completed"),
        ("welcome", 2, "standing", "sending"),
    ]


async def test_the_next_generation_is_like_the_one_before(app, welcome):
    newer = await roll(app, welcome)
    same = (
        "SELECT ROW(sender_id, template, mail_from, reply_to, unknown, attempts, max_deferred, give_up, priority,"
        " list_id, expires, missed_after, max_errors)::text FROM campaigns WHERE id = $1"
    )
    assert await app.fetchval(same, newer) == await app.fetchval(same, welcome)
    drafted = "SELECT body - 'generation' FROM events WHERE campaign_id = $1 AND delivery_id = 0 AND version = 1"
    assert await app.fetchval(drafted, newer) == await app.fetchval(drafted, welcome)


async def test_only_the_newest_that_is_being_sent_is_rolled(app, welcome):
    newer = await roll(app, welcome)
    assert await roll(app, welcome) is None
    await app.fetchval("SELECT change_campaign($1, 'Paused')", newer)
    assert await roll(app, newer) is None
    assert await roll(app, 4711) is None


async def test_a_key_is_taken_once_over_all_generations(app, welcome):
    await app.fetchval(KEYED, "a@x.example", "k")
    newest = await roll(app, await roll(app, welcome))
    assert await app.fetchval(KEYED, "a@x.example", "k") is None
    assert await app.fetchval("SELECT count(*) FROM recipient_queue WHERE campaign_id = $1", newest) == 0


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_a_key_that_somebody_writes_in_the_old_generation_is_waited_for(app, owner, other, welcome, ending):
    first = owner.transaction()
    await first.start()
    await owner.fetchval(KEYED, "a@x.example", "k")
    await roll(app, welcome)
    second = asyncio.create_task(other.fetchval(KEYED, "a@x.example", "k"))

    async def waits():
        assert await app.fetchval("SELECT cardinality(pg_blocking_pids($1))", other.get_server_pid()) == 1

    await eventually(waits, within=10)
    await (first.commit() if ending == "commit" else first.rollback())
    assert (await second is None) == (ending == "commit")


async def test_people_of_an_import_have_their_keys_in_the_family_too(app, welcome):
    await app.fetchval(KEYED, "a@x.example", "k1")
    newer = await roll(app, welcome)
    counts = await enqueue(app, newer, people(3))
    assert (counts["accepted"], counts["duplicate_key"]) == (2, 1)
    assert await app.fetchval(KEYED, "b@x.example", "k2") is None


async def test_an_old_generation_does_not_end_while_an_application_may_still_put_a_message_into_it(app, owner, welcome):
    async with owner.transaction():
        await owner.fetchval(CALL, "a@x.example")
        await roll(app, welcome)
        assert not await finish(app, welcome)
    assert not await finish(app, welcome)
    assert await drain(app, welcome) == 1
    assert await finish(app, welcome)


async def test_a_snapshot_from_before_puts_nothing_into_a_generation_that_has_ended(app, owner, welcome):
    """Under REPEATABLE READ the old one looks alive for ever; locking its row tells that it is not."""
    async with owner.transaction(isolation="repeatable_read"):
        assert await owner.fetchval("SELECT count(*) FROM campaigns") == 1
        newer = await roll(app, welcome)
        assert await finish(app, welcome)
        with pytest.raises(asyncpg.SerializationError):
            async with owner.transaction():
                await owner.fetchval(CALL, "a@x.example")
    await owner.fetchval(CALL, "a@x.example")
    assert await app.fetchval("SELECT campaign_id FROM recipient_queue") == newer


async def test_a_worker_rolls_what_has_grown_by_the_sealed_log(app, owner, welcome):
    await owner.execute(
        "CREATE OR REPLACE FUNCTION generation_size() RETURNS bigint LANGUAGE sql AS 'SELECT 3::bigint'"
    )
    worker = await enlist(app)
    waking = "SELECT waking FROM next_work($1)"
    for n in range(3):
        await app.fetchval(CALL, f"p{n}@x.example")
        assert await app.fetchval(waking, worker) == []
        assert await app.fetchval("SELECT wake_campaign($1)", welcome) is None
        await app.fetchval("SELECT seal()")
        await app.fetchval("SELECT follow_progress(100)")
    assert await app.fetchval(waking, worker) == [welcome]
    assert await app.fetchval("SELECT wake_campaign($1)", welcome) == "Rolled"
    assert await app.fetchval(waking, worker) == []
    assert await app.fetchval("SELECT count(*) FROM campaigns WHERE name = 'welcome'") == 2


async def test_nobody_is_lost_or_refused_while_generations_roll_and_end(app, database, welcome):
    """Applications that write, some of which roll back or meet in a key, and one process that rolls, sends and ends."""
    applications, calls, busy = 5, 20, asyncio.Event()
    committed: list[int] = []

    async def application(number: int) -> None:
        conn = await asyncpg.connect(database, server_settings={"default_transaction_isolation": "read committed"})
        for n in range(calls):
            transaction = conn.transaction(isolation="read_committed")
            await transaction.start()
            # Several in one: it stays open while the generation it began in is left behind.
            keys = (f"k{n}" if n % 3 == 0 else f"k{number}.{n}", f"k{number}.{n}b", f"k{number}.{n}c")
            made = [await conn.fetchval(KEYED, f"a{number}@x.example", key) for key in keys]
            if n % 5 == number:
                await transaction.rollback()
                continue
            await transaction.commit()
            committed.extend(delivery for delivery in made if delivery is not None)
        await conn.close()

    async def operator() -> None:
        conn = await Database(database).connect()
        newest, open_ones = welcome, []
        while not busy.is_set() or open_ones:
            newer = None if busy.is_set() else await roll(conn, newest)
            if newer is not None:
                open_ones.append(newest)
                newest = newer
            for campaign in open_ones:
                await drain(conn, campaign)
            open_ones = [campaign for campaign in open_ones if not await finish(conn, campaign)]
        await drain(conn, newest)
        await close(conn)

    working = asyncio.create_task(operator())
    async with asyncio.timeout(60):
        await asyncio.gather(*(application(number) for number in range(applications)))
        busy.set()
        await working
    rows = await app.fetch("SELECT q.delivery_id, q.status::text FROM recipient_queue q ORDER BY 1")
    assert [tuple(row) for row in rows] == [(delivery, "sent") for delivery in sorted(committed)]
    assert await app.fetchval("SELECT count(*) = count(DISTINCT recipient_key) FROM recipients")
    kinds = await app.fetch("SELECT status::text, count(*) FROM campaigns GROUP BY 1 ORDER BY 1")
    assert dict(kinds)["sending"] == 1
    assert dict(kinds)["completed"] > 1
