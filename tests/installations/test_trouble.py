"""Servers that are read-only, full, or cannot notify: what is said, what goes on, and that nothing is spent."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from postledger.database import Connection, Database
from postledger.errors import UnavailableError
from postledger.workers.worker import Worker, WorkerOptions
from tests import campaigns as calls
from tests.eventually import eventually
from tests.servers import PrivateServer, installation, migrate_template, watched
from tests.workers.conftest import MakeInbox, inbox
from tests.workers.mailing import Mailing, addresses

__all__ = ["inbox"]


@pytest.fixture
async def mailing(database: str, app: Connection) -> Mailing:
    return Mailing(Database(database), app)


async def end_others(owner: Connection, *, label: str) -> None:
    """Their next sessions begin with the database's new defaults."""
    query = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE datname = current_database() AND application_name LIKE $1 AND pid <> pg_backend_pid()"""
    await owner.execute(query, f"postledger {label}%")


async def test_a_standby_is_nothing_to_work_on_until_it_is_promoted(
    mailing: Mailing, owner: Connection, inbox: MakeInbox
) -> None:
    """A failover to a server that is still read-only: nothing is claimed, no attempt burned, then it goes on."""
    relay = await inbox()
    campaign = await mailing.written(relay.url, addresses(40))
    name = await owner.fetchval("SELECT current_database()")
    with capture_logs() as logs:
        async with mailing.working() as worker:
            await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
            await end_others(owner, label="worker")
            with pytest.raises(UnavailableError, match=r"is read-only .*: name the primary"):
                await Worker(mailing.database, WorkerOptions()).open()
            await mailing.change(campaign, "Started")
            await eventually(lambda: _said(logs, "session_lost"))
            assert await mailing.counts(campaign) == {"pending": 40}

            await owner.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            await mailing.until(campaign, "completed")
            assert not worker.session.lease_only
    assert (await mailing.happened(campaign)) == {"Queued": 40, "Claimed": 40, "Sent": 40}
    await mailing.check(campaign)


def _said(logs: Sequence[Mapping[str, object]], event: str) -> None:
    assert event in [entry["event"] for entry in logs]


async def fill(database: str, idle: AsyncExitStack) -> None:
    while True:
        idle.push_async_callback((await asyncpg.connect(database)).close)


async def test_no_connection_is_left(mailing: Mailing, server: PrivateServer, database: str) -> None:
    """Who comes new is told so in one line; who is there works on."""
    campaign = await mailing.written("null://", addresses(300))
    async with mailing.working(), AsyncExitStack() as idle:
        await mailing.change(campaign, "Started")
        await mailing.until(campaign, "completed")  # now it has all its connections
        again = await mailing.written("null://", addresses(300))
        with pytest.raises(asyncpg.TooManyConnectionsError):
            await fill(database, idle)
        with pytest.raises(UnavailableError, match=r"has no connection left .*max_connections"):
            await Worker(mailing.database, WorkerOptions()).open()
        await mailing.change(again, "Started")
        await mailing.until(again, "completed")
    await mailing.check(again)


SMALLEST = 64
"""Pages of the notification queue, 8 KB each: the least that a server takes, from 17 on; before that it is 8 GB."""


@pytest.fixture
async def small_queue(tmp_path: Path) -> AsyncIterator[PrivateServer]:
    home = tmp_path / "server"
    home.mkdir()
    own = PrivateServer(home, max_notify_queue_pages=str(SMALLEST))
    with watched(home):
        await own.start()
        await migrate_template(await own.create_database("postledger"))
        yield own
        await own.stop("immediate")


if installation() is None:

    async def test_a_notification_queue_that_is_full_stops_nobody(small_queue: PrivateServer) -> None:
        """A listener that hangs in a transaction; then hints are left out, and workers sweep."""
        database = Database(small_queue.dsn)
        async with database.connection() as conn, database.connection(role=None) as stuck, AsyncExitStack() as ends:
            await stuck.execute("LISTEN somewhere")
            await ends.enter_async_context(stuck.transaction())
            await stuck.fetchval("SELECT 1")
            while True:
                try:
                    await conn.execute("SELECT pg_notify('somewhere', repeat('x', 7900)) FROM generate_series(1, 20)")
                except asyncpg.ProgramLimitExceededError:
                    break
            mailing = Mailing(database, conn)
            async with mailing.working() as worker:
                assert not worker.session.hears
                campaign = await mailing.started("null://", addresses(200))
                await mailing.until(campaign, "completed")
                assert await conn.fetchval("SELECT count(*) FROM blocks") > 0
            await calls.enqueue(conn, campaign, calls.people(3))
            await mailing.change(campaign, "Paused")
            assert await conn.fetchval("SELECT pg_notification_queue_usage()") > 0.5
