"""What the database, the network and providers do to a worker in the middle of its work."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta

import pytest
from attrs import frozen

from postledger.database import Connection, Database, migrate
from postledger.demo.behaviours import Slow
from postledger.errors import ConfigurationError, UnavailableError
from postledger.workers.providers import registry
from postledger.workers.providers.base import Begin, Envelope, NotBegun
from postledger.workers.replies import Reply
from postledger.workers.worker import Worker, WorkerOptions
from tests.eventually import eventually
from tests.servers import PrivateServer
from tests.workers.conftest import MakeInbox
from tests.workers.mailing import Mailing, addresses
from tests.workers.wires import Network

IN_THE_WAY = """
    CREATE FUNCTION stand_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
    CREATE TRIGGER stand_in_the_way BEFORE INSERT ON events_1 FOR EACH ROW WHEN (new.type = 'Sent')
    EXECUTE FUNCTION stand_in_the_way()"""


async def test_while_nothing_can_be_recorded_nothing_begins(mailing: Mailing, inbox: MakeInbox, owner) -> None:
    relay = await inbox()
    campaign = await mailing.started(relay.url, addresses(60))
    await owner.execute(IN_THE_WAY)

    async with mailing.working(concurrency=10) as worker:
        await eventually(lambda: _true(worker.permits.blocked))
        await asyncio.sleep(0.3)
        assert relay.accepted <= 10  # its slots: those that are not recorded are not free
        assert await mailing.counts(campaign) == {"pending": 50, "sending": 10}
        await owner.execute("DROP TRIGGER stand_in_the_way ON events_1")
        await mailing.until(campaign, "completed")

    assert relay.received == dict.fromkeys(addresses(60), 1)
    assert await mailing.happened(campaign) == {"Queued": 60, "Claimed": 60, "Sent": 60}
    await mailing.check(campaign)


async def test_a_row_that_somebody_holds_stops_sending_until_it_is_free(
    mailing: Mailing, inbox: MakeInbox, other: Connection
) -> None:
    relay = await inbox(lambda _: Slow(timedelta(milliseconds=100)))
    campaign = await mailing.started(relay.url, addresses(40))
    async with mailing.working(concurrency=8):
        async with other.transaction():
            await mailing.until_counts(campaign, pending=32, sending=8)
            query = "SELECT FROM recipient_queue WHERE campaign_id = $1 AND status = 'sending' LIMIT 1 FOR UPDATE"
            await other.execute(query, campaign)
            await asyncio.sleep(0.5)
            accepted = relay.accepted
        await mailing.until(campaign, "completed")
    assert accepted <= 8
    assert relay.received == dict.fromkeys(addresses(40), 1)
    await mailing.check(campaign)


async def test_sessions_killed_again_and_again(mailing: Mailing, inbox: MakeInbox, owner: Connection) -> None:
    """Thirty times, all of them, at any moment: nobody is mailed twice, for this worker never dies of it."""
    dice = random.Random(11)
    relay = await inbox(lambda _: Slow(timedelta(milliseconds=5)))
    campaign = await mailing.started(relay.url, addresses(300))
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'postledger worker %'"

    async with mailing.working(concurrency=10) as worker:
        first = worker.session.worker
        for _ in range(30):
            await asyncio.sleep(dice.uniform(0, 0.06))
            await owner.fetch(query)
        await mailing.until(campaign, "completed")
        assert worker.session.worker == first

    assert relay.received == dict.fromkeys(addresses(300), 1)
    assert (await mailing.happened(campaign))["OutcomeUnknown"] == 0
    await mailing.check(campaign)


@pytest.mark.parametrize("label", ["worker claims", "worker settles", "worker % session"])
async def test_one_kind_of_session_killed_while_it_works(
    mailing: Mailing, inbox: MakeInbox, owner: Connection, label: str
) -> None:
    relay = await inbox(lambda _: Slow(timedelta(milliseconds=5)))
    campaign = await mailing.started(relay.url, addresses(150))
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE $1"

    async with mailing.working(concurrency=10):
        for _ in range(15):
            await asyncio.sleep(0.01)
            await owner.fetch(query, f"postledger {label}")
        await mailing.until(campaign, "completed")

    assert relay.received == dict.fromkeys(addresses(150), 1)
    await mailing.check(campaign)


@pytest.mark.parametrize("stopped_for", [0.0, 3.5])
async def test_a_network_that_swallows_everything(
    mailing: Mailing, inbox: MakeInbox, database: str, stopped_for: float
) -> None:
    """Half-open connections: no error, no end, no answer. Permits run out, so nothing begins; then it goes on."""
    relay = await inbox(lambda _: Slow(timedelta(milliseconds=10)))
    campaign = await mailing.started(relay.url, addresses(300))
    async with Network(database) as network, mailing.through(network.dsn).working(concurrency=10) as worker:
        first = worker.session.worker
        await mailing.until_counted(campaign, "sent", 50)
        network.freeze()
        if stopped_for:
            await asyncio.sleep(2)  # the last permit is too old by now, and what was under way is over
            accepted = relay.accepted
            await asyncio.sleep(stopped_for - 2)
            assert relay.accepted == accepted < 300
        network.thaw()
        await mailing.until(campaign, "completed")
        assert worker.session.worker == first

    assert relay.received == dict.fromkeys(addresses(300), 1)
    assert (await mailing.happened(campaign))["OutcomeUnknown"] == 0
    await mailing.check(campaign)


async def test_a_worker_that_is_not_heard_sends_all_the_same(
    mailing: Mailing, inbox: MakeInbox, owner: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler: what it listens for never comes."""
    await owner.execute("CREATE OR REPLACE FUNCTION wake() RETURNS void LANGUAGE sql VOLATILE AS $$ SELECT NULL $$")
    monkeypatch.setattr("postledger.workers.session.PROBE_WITHIN", 0.0)
    monkeypatch.setattr("postledger.workers.session.FALLBACK_SWEEP", 0.2)
    relay = await inbox()
    async with mailing.working() as worker:
        assert not worker.session.hears
        campaign = await mailing.written(relay.url, addresses(20))
        await mailing.change(campaign, "Started")
        await mailing.until(campaign, "completed")
        assert await mailing.conn.fetchval("SELECT lease_only FROM workers")
    assert relay.received == dict.fromkeys(addresses(20), 1)


async def test_two_installations_neither_hear_nor_lock_each_other(server: PrivateServer, inbox: MakeInbox) -> None:
    relay = await inbox()
    async with server.database("template1") as dsn:
        for schema in ("one", "two"):
            await migrate(dsn, schema=schema)
        one, two = Database(dsn, "one"), Database(dsn, "two")
        async with one.connection() as conn_one, two.connection() as conn_two:
            first, second = Mailing(one, conn_one), Mailing(two, conn_two)
            async with first.working() as worker_one, second.working() as worker_two:
                assert worker_one.session.worker == worker_two.session.worker == 1
                await eventually(lambda: _true(not worker_two.session.wake.is_set()))
                campaign = await first.started(relay.url, addresses(5))
                await first.until(campaign, "completed")
                assert not worker_two.session.wake.is_set()
                mine = await second.started(relay.url, addresses(3))
                await second.until(mine, "completed")


async def test_without_a_schema_it_says_what_to_do(empty_database: str) -> None:
    with pytest.raises(ConfigurationError, match="postledger migrate"):
        await Worker(Database(empty_database), WorkerOptions()).open()


async def test_without_a_server_it_says_so() -> None:
    with pytest.raises(UnavailableError, match="is the server up"):
        await Worker(Database("postgresql://nobody@127.0.0.1:1/nothing"), WorkerOptions()).open()


@frozen
class Strange:
    """A provider from elsewhere, with faults of its own."""

    fault: str
    batch: int = 1
    name: str = "strange"
    renders: bool = False

    async def open(self) -> None:
        """There is nothing to check."""

    async def close(self) -> None:
        """There is nothing to give back."""

    async def send(self, envelope: Envelope, begin: Begin) -> Reply:
        await begin()
        return self.behave()

    def behave(self) -> Reply:
        match self.fault:
            case "raises":
                raise ValueError("a fault of the provider")
            case "not begun":
                raise NotBegun(Reply.lost("connect", "no route"))
            case _:
                return Reply("eod", 250, None, "ok")


class StrangeBatch(Strange):
    async def send_batch(self, envelopes: Sequence[Envelope]) -> Sequence[Reply]:
        replies = [self.behave() for _ in envelopes]
        return replies[1:] if self.fault == "too few" else replies


@pytest.mark.parametrize("batch", [1, 20])
async def test_a_provider_that_raises_leaves_unknown_outcomes(mailing: Mailing, monkeypatch, batch: int) -> None:
    """Nobody knows what it did before; with `hold` nothing is sent again."""
    _register(monkeypatch, "raises", batch)
    campaign = await mailing.started("strange://", addresses(8), unknown="hold")
    async with mailing.working():
        await mailing.until(campaign, "completed")
    assert await mailing.counts(campaign) == {"unknown": 8}
    await mailing.check(campaign)


async def test_a_provider_that_answers_too_little(mailing: Mailing, monkeypatch: pytest.MonkeyPatch) -> None:
    _register(monkeypatch, "too few", 20)
    campaign = await mailing.started("strange://", addresses(8), unknown="hold")
    async with mailing.working():
        await mailing.until(campaign, "completed")
    assert await mailing.counts(campaign) == {"unknown": 8}
    await mailing.check(campaign)


@pytest.mark.parametrize("batch", [1, 20])
async def test_a_provider_that_does_not_begin_burns_no_attempt(mailing: Mailing, monkeypatch, batch: int) -> None:
    _register(monkeypatch, "not begun", batch)
    campaign = await mailing.started("strange://", addresses(8))
    async with mailing.working():
        await mailing.until_happened(campaign, "Released", 8)
    assert await mailing.counts(campaign) == {"pending": 8}
    assert await mailing.conn.fetchval("SELECT max(attempt) FROM recipient_queue") == 0
    await mailing.check(campaign)


def _register(monkeypatch: pytest.MonkeyPatch, fault: str, batch: int) -> None:
    kind = Strange if batch == 1 else StrangeBatch
    monkeypatch.setitem(registry._BUILT_IN, "strange", lambda url, concurrency: kind(fault, batch))


@pytest.fixture
async def other(mailing: Mailing):
    async with mailing.database.connection() as conn:
        yield conn


def _true(found: bool) -> None:
    assert found
