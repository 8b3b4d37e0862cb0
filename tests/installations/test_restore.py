"""Dumped and restored: the same again in the same cluster; in another one only under a new epoch."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import asyncpg
import pytest

from postledger.database import SCHEMA_VERSION, Connection, Database, begin_epoch, foreign_epoch, migrate
from postledger.errors import ConfigurationError
from postledger.projections.verify import verify
from postledger.workers.worker import Worker, WorkerOptions
from tests import campaigns as calls
from tests.database.test_upgrade import CATALOG, CONTENT, catalog
from tests.installations.dumps import carry
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing, addresses

BURN = "DO $$ BEGIN FOR i IN 1..{n} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$"
"""Uses up transaction numbers, so that one cluster is older than another."""

FEED = """
    SELECT b.block_no, e.position, e.epoch FROM blocks b, unnest(b.positions) AS r, events e
    WHERE e.position >= lower(r) AND e.position < upper(r) ORDER BY 1, 2"""


async def drained(conn: Connection) -> None:
    while await conn.fetchval("SELECT seal()"):
        pass
    while await conn.fetchval("SELECT follow_progress(100000)"):
        pass


async def check_feed(conn: Connection) -> list[tuple[int, int, int]]:
    """Every event is in the feed once, no older epoch after a younger one; what follows it has counted everything."""
    feed = [tuple(row) for row in await conn.fetch(FEED)]
    positions = [position for _, position, _ in feed]
    assert len(set(positions)) == len(positions)
    assert set(positions) == {row["position"] for row in await conn.fetch("SELECT position FROM events")}
    epochs = [epoch for _, _, epoch in feed]
    assert epochs == sorted(epochs)
    assert await conn.fetchval("SELECT sum(n) FROM blocks") == len(feed)
    counted = await conn.fetch(
        "SELECT pending, sending, sent, failed, skipped, cancelled, unknown FROM progress ORDER BY campaign_id"
    )
    columns = "pending, sending, sent, failed, skipped, cancelled, unknown"
    assert counted == await conn.fetch(
        f"SELECT {columns} FROM campaign_progress WHERE audience > 0 ORDER BY campaign_id"
    )
    return feed


@pytest.fixture
async def source(database: str, app: Connection, owner: Connection) -> str:
    """A campaign half sent, in an old cluster: something sealed, something followed, something neither."""
    await owner.execute(BURN.format(n=3000))
    mailing = Mailing(Database(database), app)
    campaign = await mailing.started("null://", addresses(60))
    worker = await calls.enlist(app)
    claim = await calls.claim(app, campaign, worker, 20)
    await calls.settle(app, campaign, [calls.sent(row) for row in claim.rows])
    await app.fetchval("SELECT seal()")
    await app.fetchval("SELECT follow_progress(30)")
    claim = await calls.claim(app, campaign, worker, 20)
    await calls.settle(app, campaign, [calls.sent(row) for row in claim.rows[:7]])
    return database


@pytest.fixture
async def restored(server: PrivateServer, own_server: PrivateServer, source: str) -> AsyncIterator[str]:
    """The same in a younger cluster."""
    target = await own_server.create_database("restored")
    await carry(server.bin, source, target)
    return target


async def test_in_the_same_cluster_it_is_the_same_again(
    server: PrivateServer, empty_database: str, source: str
) -> None:
    await carry(server.bin, source, empty_database)
    assert await migrate(empty_database) == SCHEMA_VERSION
    assert await foreign_epoch(empty_database) is None
    ours, theirs = await catalog(empty_database), await catalog(source)
    for name in CATALOG:
        assert ours[name] == theirs[name], name
    async with Database(empty_database).connection() as conn:
        assert (await verify(conn, None)).equal
        await drained(conn)
        await check_feed(conn)


async def test_in_a_younger_cluster_nobody_works_and_nothing_is_sealed(restored: str, source: str) -> None:
    assert await migrate(restored) == SCHEMA_VERSION  # and has nothing to do
    left, right = await asyncpg.connect(restored), await asyncpg.connect(source)
    for query in (
        *CONTENT.values(),
        "SELECT count(*) FROM postledger.events",
        "SELECT version FROM postledger.schema_version",
    ):
        assert await left.fetch(query) == await right.fetch(query)
    await left.close()
    await right.close()
    reason = await foreign_epoch(restored)
    assert reason is not None
    assert "restored dump" in reason
    async with Database(restored).connection() as conn:
        assert (await verify(conn, None)).equal
        with pytest.raises(asyncpg.PostgresError) as caught:
            await conn.fetchval("SELECT seal()")
        assert caught.value.sqlstate == "PL010"
    with pytest.raises(ConfigurationError, match=r"postledger migrate --new-epoch"):
        await Worker(Database(restored), WorkerOptions()).open()


async def test_under_a_new_epoch_the_feed_is_complete_the_old_first(restored: str) -> None:
    async with Database(restored).connection() as conn:
        at = await conn.fetchval("SELECT clock()")
        standing = (await conn.fetchrow("SELECT block_no, counts FROM as_of(1, $1)", at))["counts"]
        suppress = "SELECT suppress('p59@example.net', 'operator', 'test')"
        with pytest.raises(asyncpg.PostgresError, match="restored dump"):
            await conn.fetchval(suppress)  # transactions of two clusters in one epoch could not be told apart
        assert await begin_epoch(restored) == 2
        assert await conn.fetchval(suppress)
        assert await foreign_epoch(restored) is None
        before = await conn.fetchval("SELECT count(*) FROM blocks")
        await drained(conn)
        feed = await check_feed(conn)
        assert {epoch for _, _, epoch in feed} == {1, 2}
        assert {epoch for block, _, epoch in feed if block <= before} == {1}

        await conn.execute("UPDATE workers SET seen_at = seen_at - interval '1 hour'")
        mailing = Mailing(Database(restored), conn)
        async with mailing.working(lease_in=timedelta(seconds=30)):
            await mailing.until(1, "completed")
        assert await mailing.counts(1) == {"sent": 59, "skipped": 1}
        await drained(conn)
        await check_feed(conn)
        assert (await verify(conn, None)).equal
        assert (await conn.fetchrow("SELECT block_no, counts FROM as_of(1, $1)", at))["counts"] == standing
        now = await conn.fetchrow("SELECT block_no, counts FROM as_of(1, clock())")
        assert now["counts"] == {"sent": 59, "skipped": 1}


async def test_pg_upgrade_changes_nothing(database: str, app: Connection, owner: Connection) -> None:
    """It makes another cluster of the same rows with the same transactions."""
    await calls.started(app, 5)
    await owner.execute("UPDATE epochs SET cluster = cluster + 1")
    assert await foreign_epoch(database) is None
    await app.fetchval("SELECT suppress('p59@example.net', 'operator', 'test')")
    await drained(app)
    await check_feed(app)
    await migrate(database)
    assert await app.fetchval("SELECT cluster = cluster_id() FROM epochs")


async def test_an_epoch_begins_also_where_everything_was_sealed(database: str, app: Connection) -> None:
    await calls.started(app, 5)
    await drained(app)
    blocks = await app.fetchval("SELECT count(*) FROM blocks")
    assert await begin_epoch(database) == 2
    assert await app.fetchval("SELECT count(*) FROM blocks") == blocks
    assert await begin_epoch(database) == 3
    await drained(app)
    feed = await check_feed(app)
    assert [epoch for _, _, epoch in feed[-2:]] == [2, 3]


async def test_who_writes_while_an_epoch_begins_is_in_the_feed(
    database: str, app: Connection, owner: Connection
) -> None:
    campaign = await calls.draft(app)
    async with owner.transaction():
        await calls.enqueue(owner, campaign, calls.people(5))
        beginning = asyncio.create_task(begin_epoch(database))
        await asyncio.wait([beginning], timeout=0.3)
        assert not beginning.done()
    assert await beginning == 2
    await drained(app)
    await check_feed(app)
