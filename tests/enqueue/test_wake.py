"""Workers hear of a message when it is committed; but not where they need not, or the server has no room for it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postledger.database import Connection, Database
from postledger.embedded.server import Server
from tests.campaigns import change
from tests.enqueue.conftest import standing
from tests.eventually import eventually
from tests.servers import SETTINGS, migrate_template, watched


class Ear:
    """A connection that listens as workers do."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self.heard = 0

    @classmethod
    async def of(cls, conn: Connection) -> "Ear":
        ear = cls(conn)
        await conn.add_listener(await conn.fetchval("SELECT wake_channel()"), ear.hear)
        return ear

    def hear(self, *_: object) -> None:
        self.heard += 1

    async def count(self) -> int:
        """How often it was woken so far: what was sent before this call has come in."""
        await self.conn.fetchval("SELECT 1")
        return self.heard


CALL = "SELECT postledger.enqueue('welcome', 'ann@x.example')"


async def test_at_commit(app: Connection, owner: Connection, welcome: int) -> None:
    ear = await Ear.of(app)
    async with owner.transaction():
        await owner.fetchval(CALL)
        await owner.fetchval(CALL)
        assert await ear.count() == 0
    assert await ear.count() == 1


async def test_not_where_nobody_wants_it(app: Connection, owner: Connection, welcome: int) -> None:
    ear = await Ear.of(app)
    await owner.fetchval("SELECT enqueue('welcome', 'ann@x.example', wake => false)")
    transaction = owner.transaction()
    await transaction.start()
    await owner.fetchval(CALL)
    await transaction.rollback()
    assert await ear.count() == 0
    await change(owner, welcome, "Paused")
    before = await ear.count()
    await owner.fetchval(CALL)
    assert await ear.count() == before


@pytest.fixture
async def narrow(tmp_path: Path) -> AsyncIterator[Database]:
    """A server whose queue of notifications is small, which takes a PostgreSQL of 17 or newer: the embedded one."""
    server = Server.at(tmp_path, None, {**SETTINGS, "max_notify_queue_pages": "64"})
    with watched(tmp_path):
        dsn = await server.start()
        await migrate_template(dsn)
        yield Database(dsn)
        await server.stop("immediate")


async def test_not_where_the_queue_is_half_full(narrow: Database) -> None:
    """It would be the application's commit that fails when it is full."""
    async with narrow.connection() as app, narrow.connection(role=None) as sleeper, narrow.connection() as worker:
        await standing(app)
        ear = await Ear.of(worker)
        await sleeper.execute("LISTEN other")
        await sleeper.execute("BEGIN")  # whoever listens in an open transaction holds the queue up

        async def fill(share: float) -> None:
            await app.execute("SELECT pg_notify('other', repeat(n::text, 2500)) FROM generate_series(100, 110) n")
            assert await app.fetchval("SELECT pg_notification_queue_usage()") >= share

        await eventually(lambda: fill(0.1), within=20)
        await app.fetchval(CALL)
        assert await ear.count() == 1
        await eventually(lambda: fill(0.5), within=20)
        assert await app.fetchval(CALL) is not None
        assert await ear.count() == 1
        await sleeper.execute("ROLLBACK")

        async def drained() -> None:
            await sleeper.fetchval("SELECT 1")
            assert await app.fetchval("SELECT pg_notification_queue_usage()") < 0.5

        await eventually(drained, within=20)
        await app.fetchval(CALL)

        async def woken() -> None:
            assert await ear.count() == 2

        await eventually(woken, within=20)
