"""The server is killed in between: what it had promised is in the feed, once, and nothing else is."""

import asyncio
import random
from contextlib import suppress
from functools import partial

from postledger.database import GONE, Connection, Database
from postledger.errors import UnavailableError
from postledger.ledger.sealing import seal, seal_all
from postledger.projections import follow, progress
from postledger.projections.verify import verify
from tests.eventually import eventually
from tests.sealing.log import Keeper, append, feed, make_seen, seen
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing

LOST = (*GONE, UnavailableError)
KILLS = 3
WRITERS = 3


class Committed:
    """What commits were answered, and what was asked for at all."""

    def __init__(self) -> None:
        self.certain: set[int] = set()
        self.versions = dict.fromkeys(range(1, WRITERS + 1), 0)


async def write(database: Database, stream: int, known: Committed, enough: asyncio.Event) -> None:
    """Transactions of some events, some of them rolled back, until the server is gone."""
    with suppress(*LOST):
        async with database.connection() as conn:
            first = 1 + (await conn.fetchval(LAST, stream) or 0)
            while True:
                await conn.execute("BEGIN")
                positions = await append(conn, (1, stream), first, 3)
                await asyncio.sleep(0)
                if random.random() < 0.2:
                    await conn.execute("ROLLBACK")
                    continue
                await conn.execute("COMMIT")
                known.certain.update(positions)
                first += 3
                if len(known.certain) % 150 == 0:
                    enough.set()


LAST = "SELECT max(version) FROM events WHERE campaign_id = 1 AND delivery_id = $1"


async def keep_sealing(database: Database) -> None:
    with suppress(*LOST):
        async with database.connection() as conn:
            while True:
                await seal(conn)


async def keep_following(database: Database) -> None:
    with suppress(*LOST):
        async with database.connection() as conn:
            while True:
                await follow.step(conn, Keeper("keeper"), 10)


async def test_what_was_committed_comes_once_whenever_the_server_is_killed(own_server: PrivateServer) -> None:
    known = Committed()
    async with Database(own_server.dsn).connection(role=None) as owner:
        await make_seen(owner)
    for kill in range(KILLS):
        database, enough = Database(own_server.dsn), asyncio.Event()
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for stream in range(1, WRITERS + 1):
                group.create_task(write(database, stream, known, enough))
            group.create_task(keep_sealing(database))
            group.create_task(keep_sealing(database))
            group.create_task(keep_following(database))
            await enough.wait()
            await (own_server.kill() if kill % 2 == 0 else own_server.stop("immediate"))
        await own_server.start()
    async with Database(own_server.dsn).connection() as conn:
        await check(conn, known)


async def check(conn: Connection, known: Committed) -> None:
    """The log, the blocks, the feed and what the follower wrote down say the same."""
    await seal_all(conn)
    while (page := await follow.step(conn, Keeper("keeper"), 100)) and not page.is_last:
        pass
    rows = await conn.fetch(ALL)
    whole = await feed(conn)
    assert await seen(conn, "keeper") == whole == [(row["block"], row["position"]) for row in rows]
    assert known.certain <= {row["position"] for row in rows}
    for stream in range(1, WRITERS + 1):
        versions = [row["version"] for row in rows if (row["campaign_id"], row["delivery_id"]) == (1, stream)]
        assert versions == list(range(1, len(versions) + 1))
    assert len(known.certain) > 100 * KILLS
    blocks = [row[0] for row in await conn.fetch("SELECT block_no FROM blocks ORDER BY block_no")]
    assert blocks == list(range(1, len(blocks) + 1))


ALL = "SELECT position, campaign_id, delivery_id, version, block_of(epoch, xid) AS block FROM events ORDER BY 5, 1"


async def test_progress_is_right_again_after_a_crash(own_server: PrivateServer) -> None:
    async with Database(own_server.dsn).connection() as conn:
        mailing = Mailing(Database(own_server.dsn), conn)
        campaign = await mailing.started("null://", [f"p{n}@example.net" for n in range(3000)])
        async with mailing.working() as worker:
            await eventually(partial(has_begun, conn, campaign), within=30)
            await own_server.kill()
            await own_server.start()
            async with Database(own_server.dsn).connection() as again:
                await Mailing(Database(own_server.dsn), again).until(campaign, "completed", within=60)
            assert worker.outcomes["Sent"]
    async with Database(own_server.dsn).connection() as conn:
        counted = await progress.read(conn, campaign)
        assert counted is not None
        assert counted.sent == 3000
        assert await conn.fetchrow(SAME, campaign) is not None
        assert (await verify(conn, None)).equal


async def has_begun(conn: Connection, campaign: int) -> None:
    assert await progress.read(conn, campaign) is not None


SAME = """
    SELECT FROM campaign_progress v JOIN progress p USING (campaign_id) WHERE campaign_id = $1
    AND (v.pending, v.sending, v.sent, v.failed, v.skipped, v.cancelled, v.unknown)
      = (p.pending, p.sending, p.sent, p.failed, p.skipped, p.cancelled, p.unknown)
"""
