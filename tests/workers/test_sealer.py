"""What a process appends is sealed and counted, soon and before it leaves; where nothing was, nothing is done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal
from postledger.workers import sealer
from postledger.workers.link import Link
from postledger.workers.loops import forever
from postledger.workers.sealer import Sealer
from tests import campaigns
from tests.eventually import eventually
from tests.workers.mailing import Mailing, addresses

SAME = """
    SELECT (v.pending, v.sending, v.sent, v.failed, v.skipped, v.cancelled, v.unknown)
         = (p.pending, p.sending, p.sent, p.failed, p.skipped, p.cancelled, p.unknown)
    FROM campaign_progress v JOIN progress p USING (campaign_id) WHERE campaign_id = $1
"""


class Counted(Link):
    """Counts how often it is used."""

    uses = 0

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        self.uses += 1
        async with super().use() as conn:
            yield conn


@asynccontextmanager
async def sealing(database: str, every: float = 0.0) -> AsyncIterator[tuple[Sealer, Counted]]:
    link = Counted(Database(database), "seals of the test")
    made = Sealer(link, every=every)
    loop = asyncio.create_task(forever(made.step, "sealer"))
    try:
        yield made, link
    finally:
        loop.cancel()
        await asyncio.wait([loop])
        await link.close()


async def unsealed(conn: Connection) -> int:
    return await conn.fetchval("SELECT count(*) FROM events WHERE block_of(epoch, xid) IS NULL")


async def until_sealed(conn: Connection) -> None:
    async def done() -> None:
        assert await unsealed(conn) == 0

    await eventually(done)


async def test_what_was_appended_is_sealed_and_counted(app: Connection, database: str) -> None:
    campaign = await campaigns.started(app, 5)
    async with sealing(database) as (made, _):
        made.note()
        await until_sealed(app)

        async def counted() -> None:
            assert await app.fetchval(SAME, campaign)

        await eventually(counted)


async def test_it_asks_for_nothing_where_nothing_was_appended(app: Connection, database: str) -> None:
    """With no time at all between two blocks: whoever looked without having been told would look now."""
    async with sealing(database) as (made, link):
        await campaigns.started(app, 5)
        for _ in range(50):
            await app.fetchval("SELECT 1")
        assert link.uses == 0
        made.note()
        await until_sealed(app)
        uses = link.uses
        await campaigns.started(app, 5, "another")
        for _ in range(50):
            await app.fetchval("SELECT 1")
        assert (link.uses, uses) == (1, 1)


async def test_who_finds_another_at_it_tries_again(app: Connection, database: str) -> None:
    """His block was taken before our commit."""
    async with Database(database).connection() as other, sealing(database) as (made, link):
        await campaigns.draft(app, "first")
        await other.execute("BEGIN")
        assert await seal(other)
        await campaigns.draft(app, "second")
        made.note()

        async def tried() -> None:
            assert link.uses > 3

        await eventually(tried)
        assert await unsealed(app) > 0
        await other.execute("COMMIT")
        await until_sealed(app)


async def test_who_finds_another_following_tries_again(app: Connection, database: str) -> None:
    campaign = await campaigns.started(app, 5)
    async with Database(database).connection() as other, sealing(database) as (made, link):
        await other.execute("BEGIN")
        await other.fetchval("SELECT follow_progress(3)")
        made.note()

        async def tried() -> None:
            assert link.uses > 3

        await eventually(tried)
        await other.execute("ROLLBACK")

        async def counted() -> None:
            assert await app.fetchval(SAME, campaign)

        await eventually(counted)


async def test_what_is_being_counted_holds_up_no_block(
    app: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page at a time where the follower is behind, and a block in between."""
    monkeypatch.setattr(sealer.progress, "PAGE", 7)
    monkeypatch.setattr(sealer, "FOLLOW_FOR", 0.0)
    campaign = await campaigns.started(app, 100)
    async with sealing(database) as (made, link):
        made.note()

        async def counted() -> None:
            assert await app.fetchval(SAME, campaign)

        await eventually(counted)
        assert link.uses >= 100 // 7


async def test_a_lost_connection_loses_no_block(app: Connection, owner: Connection, database: str) -> None:
    async with sealing(database) as (made, _):
        made.note()
        await until_sealed(app)
        await owner.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%seals of the test'"
        )
        await campaigns.draft(app)
        made.note()
        await until_sealed(app)


async def test_a_refusal_is_told_and_tried_again(
    app: Connection, owner: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealer, "REFUSED_AGAIN", 0.0)
    async with sealing(database) as (made, link):
        await owner.execute("ALTER TABLE blocks ADD CONSTRAINT refused CHECK (n = 0) NOT VALID")
        made.note()

        async def tried() -> None:
            assert link.uses > 2

        await eventually(tried)
        await owner.execute("ALTER TABLE blocks DROP CONSTRAINT refused")
        await until_sealed(app)


async def test_finish_waits_for_another_and_seals(app: Connection, database: str) -> None:
    campaign = await campaigns.started(app, 5)
    link = Link(Database(database), "seals of the test")
    async with Database(database).connection() as other:
        await other.execute("BEGIN")
        assert await seal(other)
        leaving = asyncio.create_task(Sealer(link).finish())
        await campaigns.change(app, campaign, "Paused")
        await other.execute("COMMIT")
        await leaving
    assert await unsealed(app) == 0
    assert await app.fetchval(SAME, campaign)
    await link.close()


async def test_finish_waits_for_another_who_counts(app: Connection, database: str) -> None:
    """Who has looked before our block will not look again."""
    link = Link(Database(database), "seals of the test")
    async with Database(database).connection() as other:
        await other.execute("BEGIN")
        await other.fetchval("SELECT follow_progress(3)")
        campaign = await campaigns.started(app, 5)
        leaving = asyncio.create_task(Sealer(link).finish())
        await until_sealed(app)
        await other.execute("COMMIT")
        await leaving
    assert await app.fetchval(SAME, campaign)
    await link.close()


async def test_finish_ends_without_a_database(database: str) -> None:
    link = Link(Database(database.replace("/test_", "/no_such_")), "seals of the test")
    await Sealer(link).finish()


async def test_a_worker_leaves_nothing_unsealed(mailing: Mailing, app: Connection) -> None:
    campaign = await mailing.started("null://", addresses(300))
    async with mailing.working():
        await mailing.until(campaign, "completed")
    assert await unsealed(app) == 0
    assert await app.fetchval(SAME, campaign)
    assert await app.fetchval("SELECT sent FROM progress WHERE campaign_id = $1", campaign) == 300
    await mailing.check(campaign)


async def test_a_worker_seals_what_others_have_left(mailing: Mailing, app: Connection) -> None:
    """A process that was killed, an application's own transaction: whatever wakes it finds out, or its idle look."""
    async with mailing.working() as worker:
        await until_sealed(app)
        await app.execute("SELECT suppress('ann@example.org', 'operator', 'test')")
        assert await unsealed(app) > 0
        worker.session.wake.set()
        await until_sealed(app)


async def test_workers_at_once_leave_nothing_unsealed(mailing: Mailing, app: Connection) -> None:
    campaign = await mailing.started("null://", addresses(2000))
    async with mailing.working(), mailing.working(), mailing.working():
        await mailing.until(campaign, "completed")
    assert await unsealed(app) == 0
    assert await app.fetchval(SAME, campaign)
    numbers = [row[0] for row in await app.fetch("SELECT block_no FROM blocks ORDER BY 1")]
    assert numbers == list(range(1, len(numbers) + 1))
