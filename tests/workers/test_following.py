"""A follower in a process of its own is woken by new blocks, and by nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal
from postledger.workers.following import Following
from postledger.workers.loops import forever
from tests import campaigns
from tests.eventually import eventually
from tests.sealing.log import Broken, Keeper, feed, make_seen, seen

WITHIN = 10.0
"""Less than the 30 s after which it looks for itself: what comes sooner was woken."""


@pytest.fixture(autouse=True)
async def kept(owner: Connection) -> None:
    await make_seen(owner)


@asynccontextmanager
async def following(database: str, keeper: Keeper) -> AsyncIterator[Following]:
    made = Following(Database(database), keeper, limit=10)
    loop = asyncio.create_task(forever(made.step, "following"))
    try:
        yield made
    finally:
        loop.cancel()
        await asyncio.wait([loop])
        await made.close()


async def until_all_is_seen(conn: Connection, name: str) -> None:
    async def all_seen() -> None:
        assert await seen(conn, name) == await feed(conn)

    await eventually(all_seen, WITHIN)


async def test_it_has_each_block_when_it_is_there(app: Connection, database: str) -> None:
    await campaigns.started(app, 35)
    await seal(app)
    async with following(database, Keeper("k")):
        await until_all_is_seen(app, "k")
        for n in range(3):
            await campaigns.draft(app, f"another {n}")
            await seal(app)
            await until_all_is_seen(app, "k")


async def test_a_block_between_its_look_and_its_sleep_is_not_missed(app: Connection, database: str) -> None:
    async def seal_another(_: Connection) -> None:
        count = await other.fetchval("SELECT count(*) FROM campaigns")
        if count < 5:
            await campaigns.draft(other, str(count))
            await seal(other)

    await campaigns.draft(app)
    await seal(app)
    async with Database(database).connection() as other, following(database, Keeper("k", break_off=seal_another)):

        async def five() -> None:
            assert await app.fetchval("SELECT count(*) FROM campaigns") == 5

        await eventually(five, WITHIN)
        await until_all_is_seen(app, "k")


async def test_it_returns_after_its_connections_were_lost(app: Connection, owner: Connection, database: str) -> None:
    async with following(database, Keeper("k")):
        for n in range(3):
            await campaigns.draft(app, f"campaign {n}")
            await seal(app)
            await until_all_is_seen(app, "k")
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%follower k'"
            )
            await campaigns.draft(app, f"meanwhile {n}")
            await seal(app)
            await until_all_is_seen(app, "k")


async def test_what_its_follower_raises_is_tried_again_and_nothing_is_passed(app: Connection, database: str) -> None:
    failures = 1

    async def fail_at_first(_: Connection) -> None:
        nonlocal failures
        if failures:
            failures -= 1
            raise Broken

    await campaigns.started(app, 35)
    await seal(app)
    async with following(database, Keeper("k", break_off=fail_at_first)):
        await until_all_is_seen(app, "k")
    assert failures == 0


async def test_two_processes_share_a_follower(app: Connection, database: str) -> None:
    """One drives it, the other stands by; together they have everything once."""
    async with following(database, Keeper("k")), following(database, Keeper("k")):
        for n in range(5):
            await campaigns.started(app, 20, f"campaign {n}")
            await seal(app)
        await until_all_is_seen(app, "k")
