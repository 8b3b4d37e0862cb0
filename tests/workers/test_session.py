"""A worker's own connection: heard, lost, made anew; and what others see of it meanwhile."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from postledger.database import SCHEMA_VERSION, Connection, Database
from postledger.errors import ConfigurationError, UnavailableError
from postledger.workers.link import Link
from postledger.workers.session import FALLBACK_SWEEP, IDLE_SWEEP, Session
from postledger.workers.worker import Worker, WorkerOptions
from tests.eventually import eventually
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing


class Cut(Session):
    """Loses its connection while it listens for its probe, the first time."""

    def __init__(self, database: Database, helper: Link, owner: Connection) -> None:
        super().__init__(database, helper, on_buried=lambda: None)
        self.owner: Connection | None = owner

    async def _hear_probe(self, conn: Connection, channel: str) -> bool:
        heard = await super()._hear_probe(conn, channel)
        if self.owner is not None:
            await self.owner.execute("SELECT pg_terminate_backend($1)", conn.get_server_pid())
            await eventually(lambda: _true(conn.is_closed()))
            self.owner = None
        return heard


class Deaf(Session):
    """Its helper is in another database: what that sends is not heard, as behind a pooler that nobody sees."""

    async def _check_place(self, conn: Connection) -> None:
        pass


@pytest.fixture
async def helper(mailing: Mailing) -> AsyncIterator[Link]:
    link = Link(mailing.database, "helper")
    yield link
    await link.close()


@pytest.fixture
async def buried() -> list[str]:
    return []


@pytest.fixture
async def session(mailing: Mailing, helper: Link, buried: list[str]) -> AsyncIterator[Session]:
    session = Session(mailing.database, helper, on_buried=lambda: buried.append("buried"))
    await session.open()
    yield session
    await session.close()


async def worker_row(conn: Connection, worker: int) -> dict[str, object]:
    row = await conn.fetchrow("SELECT session, lease_only, ended FROM workers WHERE id = $1", worker)
    assert row is not None
    return dict(row)


async def lock_is_free(conn: Connection, worker: int) -> bool:
    async with conn.transaction():
        return await conn.fetchval("SELECT pg_try_advisory_xact_lock(lock_key('worker', $1))", worker)


async def kill(owner: Connection, session: Session) -> None:
    async with session.use() as conn:
        pid = conn.get_server_pid()
    await owner.execute("SELECT pg_terminate_backend($1)", pid)
    await eventually(lambda: _true(session._lost.is_set()))


def _true(found: bool) -> None:
    assert found


async def test_it_holds_its_lock_hears_and_catches_up(mailing: Mailing, session: Session) -> None:
    assert session.hears
    assert session.sweep_in == IDLE_SWEEP
    assert session.wake.is_set()  # whatever was committed before it listened
    assert not await lock_is_free(mailing.conn, session.worker)
    assert await worker_row(mailing.conn, session.worker) == {"session": 2, "lease_only": False, "ended": None}

    session.wake.clear()
    await mailing.conn.execute("SELECT wake()")
    await eventually(lambda: _true(session.wake.is_set()))


async def test_any_payload_is_a_hint(mailing: Mailing, session: Session) -> None:
    session.wake.clear()
    await mailing.conn.execute("SELECT pg_notify(wake_channel(), 'not ''json {')")
    await eventually(lambda: _true(session.wake.is_set()))


async def test_a_lost_connection_is_made_anew(mailing: Mailing, session: Session, owner: Connection) -> None:
    former, since = session.number, session.since
    await kill(owner, session)
    session.wake.clear()
    await session.step()

    assert session.number == former + 1
    assert session.since > since
    assert session.wake.is_set()
    assert not await lock_is_free(mailing.conn, session.worker)
    session.wake.clear()
    await mailing.conn.execute("SELECT wake()")
    await eventually(lambda: _true(session.wake.is_set()))


async def test_a_connection_lost_while_it_is_made_is_made_anew(mailing: Mailing, helper: Link, owner) -> None:
    session = Cut(mailing.database, helper, owner)
    await session.open()
    await session.step()
    async with session.use() as conn:
        assert await conn.fetchval("SELECT 1") == 1
    await session.close()


async def test_one_declared_dead_is_somebody_else_from_then_on(
    mailing: Mailing, session: Session, owner: Connection, buried: list[str]
) -> None:
    former = session.worker
    await owner.execute("UPDATE workers SET ended = 'dead', ended_at = clock()")
    await kill(owner, session)
    await session.step()

    assert buried == ["buried"]
    assert session.worker != former
    assert not await lock_is_free(mailing.conn, session.worker)
    assert (await worker_row(mailing.conn, session.worker))["ended"] is None


async def test_who_leaves_says_so_and_wakes_the_others(mailing: Mailing, helper: Link, session: Session) -> None:
    leaving = Session(mailing.database, helper, on_buried=lambda: None)
    await leaving.open()
    session.wake.clear()
    await leaving.close()

    assert (await worker_row(mailing.conn, leaving.worker))["ended"] == "left"
    await eventually(lambda: _true(session.wake.is_set()))

    async def free() -> None:
        assert await lock_is_free(mailing.conn, leaving.worker)

    await eventually(free)


async def test_unheard_it_sweeps_and_lives_by_its_lease(
    mailing: Mailing, server: PrivateServer, owner: Connection
) -> None:
    with capture_logs() as logs:
        async with server.database() as elsewhere:
            other = Link(Database(elsewhere), "elsewhere")
            session = Deaf(mailing.database, other, on_buried=lambda: None)
            await session.open()
            await kill(owner, session)
            await session.step()

            assert not session.hears
            assert session.lease_only
            assert session.sweep_in == FALLBACK_SWEEP
            assert (await worker_row(mailing.conn, session.worker))["lease_only"]
            await session.close()
            await other.close()
    assert [entry["event"] for entry in logs].count("notifications_unheard") == 1


async def test_it_listens_where_it_works(mailing: Mailing, server: PrivateServer) -> None:
    async with server.database() as elsewhere:
        other = Link(Database(elsewhere), "elsewhere")
        session = Session(mailing.database, other, on_buried=lambda: None)
        with pytest.raises(UnavailableError, match=r"--listen .* is another database than --database"):
            await session.open()
        await other.close()


async def test_after_an_upgrade_it_stays_itself_and_says_that_it_is_too_old(
    mailing: Mailing, helper: Link, owner: Connection
) -> None:
    unfit = asyncio.Event()
    session = Session(mailing.database, helper, on_buried=lambda: None, on_unfit=unfit.set)
    await session.open()
    step = asyncio.ensure_future(session.step())
    await owner.execute("SELECT pg_notify(schema_channel(), '')")  # nothing has changed for us
    await eventually(lambda: _true(step.done()))
    assert session.unfit is None

    step = asyncio.ensure_future(session.step())
    async with owner.transaction():
        await owner.execute("INSERT INTO schema_version (version) VALUES ($1)", SCHEMA_VERSION + 1)
        await owner.execute("SELECT pg_notify(schema_channel(), '')")
    await asyncio.wait_for(unfit.wait(), 30)
    assert f"version {SCHEMA_VERSION + 1}, newer than the {SCHEMA_VERSION} of this program" in str(session.unfit)
    assert not await lock_is_free(mailing.conn, session.worker)
    step.cancel()
    await session.close()


async def restored(owner: Connection) -> None:
    """As a dump leaves it: the cluster is another, and so is the transaction that brought the rows."""
    await owner.execute(
        "INSERT INTO events (xid, campaign_id, delivery_id, type, body) VALUES ('7', 0, 0, 'Migrated', '{}')"
    )
    await owner.execute("UPDATE epochs SET cluster = cluster + 1")


async def test_a_log_from_another_cluster_is_not_worked_on(mailing: Mailing, helper: Link, owner: Connection) -> None:
    await restored(owner)
    session = Session(mailing.database, helper, on_buried=lambda: None)
    with pytest.raises(ConfigurationError, match=r"another cluster .* 'postledger migrate --new-epoch'"):
        await session.open()


async def test_it_comes_back_when_the_server_does(own_server: PrivateServer) -> None:
    database = Database(own_server.dsn)
    helper = Link(database, "helper")
    session = Session(database, helper, on_buried=lambda: None)
    await session.open()
    await own_server.stop("immediate")
    await eventually(lambda: _true(session._lost.is_set()))
    await session.step()  # in vain
    await own_server.start()

    async def back() -> None:
        await session.step()
        assert session._ready.is_set()

    await eventually(back, within=30)
    async with session.use() as conn:
        assert await conn.fetchval("SELECT count(*) FROM workers WHERE ended IS NULL") == 1
    await session.close()
    await helper.close()


async def test_a_worker_that_cannot_begin_says_why_in_one_error(mailing: Mailing) -> None:
    """Its ear is in order, and the way of all its other calls is not: no traceback of a connection that was lost."""
    nowhere = Database("postgresql://127.0.0.1:1/nothing")
    worker = Worker(nowhere, WorkerOptions(), listen=mailing.database)
    with pytest.raises(UnavailableError, match=r"the database went away: .*127\.0\.0\.1:1"):
        await worker.open()
