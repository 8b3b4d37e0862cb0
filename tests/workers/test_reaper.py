"""Dead workers are found and their rows given back; living ones are left alone."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import pytest

from postledger.database import Connection
from postledger.workers.link import Link
from postledger.workers.reaper import PROBE_EVERY, Reaper
from postledger.workers.session import Session
from tests import campaigns
from tests.eventually import eventually
from tests.workers.mailing import Mailing, addresses


class Observer:
    """A worker that only watches, and whose second passes when the test says so."""

    def __init__(self, mailing: Mailing) -> None:
        self.link = Link(mailing.database, "observer")
        self.session = Session(mailing.database, self.link, on_buried=lambda: None)
        self.reaper = Reaper(self.session, self.link, lease_in=timedelta(seconds=60), clock=self.clock)
        self.later = self.reaper.unbroken_for

    def clock(self) -> float:
        return time.monotonic() + self.later

    async def look(self, after: float = PROBE_EVERY) -> None:
        self.later += after
        self.reaper.needed.set()
        await self.reaper.look()

    async def close(self) -> None:
        await self.session.close()
        await self.link.close()


@pytest.fixture
async def observe(mailing: Mailing) -> AsyncIterator[Callable[[], Awaitable[Observer]]]:
    opened: list[Observer] = []

    async def start() -> Observer:
        observer = Observer(mailing)
        await observer.session.open()
        opened.append(observer)
        return observer

    yield start
    for observer in opened:
        await observer.close()


@pytest.fixture
async def observer(observe: Callable[[], Awaitable[Observer]]) -> Observer:
    return await observe()


@pytest.fixture
async def other(mailing: Mailing) -> AsyncIterator[Connection]:
    """The session of another worker."""
    async with mailing.database.connection() as conn:
        yield conn


async def holding(mailing: Mailing, other: Connection, *, locked: bool) -> tuple[int, int]:
    """Another worker with two claimed rows, with its lock or without: (campaign, worker)."""
    campaign = await mailing.started("null://", addresses(3))
    worker = await campaigns.enlist(other)
    if locked:
        await other.execute("SELECT pg_advisory_lock(lock_key('worker', $1))", worker)
    await campaigns.claim(other, campaign, worker, 2)
    return campaign, worker


async def ended(conn: Connection, worker: int) -> str | None:
    return await conn.fetchval("SELECT ended FROM workers WHERE id = $1", worker)


async def test_a_dead_ones_rows_have_an_unknown_outcome_and_go_round_again(mailing, other, observer: Observer) -> None:
    campaign, worker = await holding(mailing, other, locked=False)
    observer.session.wake.clear()
    await observer.look()
    assert await ended(mailing.conn, worker) is None
    await observer.look()

    assert await ended(mailing.conn, worker) == "dead"
    assert await mailing.counts(campaign) == {"pending": 3}
    types = await mailing.types(campaign, addresses(1)[0])
    assert types == ["Queued", "Claimed", "OutcomeUnknown", "Requeued"]
    await eventually(lambda: _true(observer.session.wake.is_set()))  # and every other worker's
    await mailing.check(campaign)


async def test_one_that_holds_its_lock_is_alive(mailing, other, observer: Observer) -> None:
    campaign, worker = await holding(mailing, other, locked=True)
    for _ in range(4):
        await observer.look()
    assert await ended(mailing.conn, worker) is None
    assert await mailing.counts(campaign) == {"pending": 1, "sending": 2}


async def test_a_hung_one_is_dead_when_its_lease_is_over(mailing, other, owner: Connection, observer: Observer) -> None:
    campaign, worker = await holding(mailing, other, locked=True)
    await observer.look()
    await owner.execute("UPDATE workers SET seen_at = clock() - interval '61 s' WHERE id = $1", worker)
    await observer.look()
    assert await ended(mailing.conn, worker) == "dead"
    assert await mailing.counts(campaign) == {"pending": 3}


async def test_behind_a_pooler_only_the_lease_counts(mailing, other, owner: Connection, observer: Observer) -> None:
    _, worker = await holding(mailing, other, locked=False)
    await other.execute("SELECT relock_worker($1, true)", worker)
    for _ in range(3):
        await observer.look()
    assert await ended(mailing.conn, worker) is None

    await owner.execute("UPDATE workers SET seen_at = clock() - interval '61 s' WHERE id = $1", worker)
    await observer.look()
    assert await ended(mailing.conn, worker) == "dead"


async def test_one_that_comes_back_in_between_is_alive(mailing, other, observer: Observer) -> None:
    """It lost its connection at one probe and at the next, and was there in the meantime."""
    _, worker = await holding(mailing, other, locked=False)
    await observer.look()
    await other.execute("SELECT relock_worker($1, false)", worker)
    await observer.look()
    assert await ended(mailing.conn, worker) is None
    await observer.look()
    assert await ended(mailing.conn, worker) == "dead"


async def test_one_that_comes_back_at_the_last_moment_is_alive(mailing, other, observer: Observer) -> None:
    _, worker = await holding(mailing, other, locked=False)
    async with observer.session.use() as conn:
        probes = await observer.reaper._probe(conn)
    await observer.reaper._bury_and_reclaim(probes)
    observer.later += PROBE_EVERY
    await other.execute("SELECT pg_advisory_lock(lock_key('worker', $1)), relock_worker($1, false)", worker)
    await observer.reaper._bury_and_reclaim(probes)
    assert await ended(mailing.conn, worker) is None


async def test_an_observer_that_is_new_itself_buries_nobody(mailing, other, owner, observer: Observer) -> None:
    """Not for a free lock, and not for a lease that ended while there was no server either."""
    _, worker = await holding(mailing, other, locked=False)
    await owner.execute("UPDATE workers SET seen_at = clock() - interval '1 h' WHERE id = $1", worker)
    observer.later = 0
    await observer.look(after=1)
    await observer.look(after=1)
    assert await ended(mailing.conn, worker) is None


async def test_one_that_has_left_something_behind_needs_no_burial(mailing, other, observer: Observer) -> None:
    campaign, worker = await holding(mailing, other, locked=True)
    await other.execute("SELECT leave_worker($1)", worker)
    observer.later = 0
    await observer.look(after=0)
    assert await mailing.counts(campaign) == {"pending": 3}


async def test_one_claim_that_cannot_be_given_back_holds_up_no_other(mailing, other, owner, observer: Observer) -> None:
    stuck, _ = await holding(mailing, other, locked=False)
    campaign, _ = await holding(mailing, other, locked=False)
    await owner.execute(f"""
        CREATE FUNCTION stand_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
        CREATE TRIGGER stand_in_the_way BEFORE INSERT ON events_1 FOR EACH ROW WHEN (new.campaign_id = {stuck})
        EXECUTE FUNCTION stand_in_the_way()""")
    await observer.look()
    await observer.look()
    assert await mailing.counts(campaign) == {"pending": 3}
    assert await mailing.counts(stuck) == {"pending": 1, "sending": 2}

    await owner.execute("DROP TRIGGER stand_in_the_way ON events_1")
    await observer.look()
    assert await mailing.counts(stuck) == {"pending": 3}


async def test_a_claim_of_a_locked_campaign_waits_for_the_next_look(mailing, other, owner, observer: Observer) -> None:
    locked, _ = await holding(mailing, other, locked=False)
    campaign, _ = await holding(mailing, other, locked=False)
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", locked)
        await observer.look()
        await observer.look()
        assert await mailing.counts(campaign) == {"pending": 3}
        assert (await mailing.counts(locked))["sending"] == 2
    await observer.look()
    assert await mailing.counts(locked) == {"pending": 3}


async def test_one_watches_and_the_next_takes_over(mailing, other, owner, observe) -> None:
    first, second = await observe(), await observe()
    _, worker = await holding(mailing, other, locked=False)
    await first.look()
    for _ in range(3):
        await second.look()
    assert await ended(mailing.conn, worker) is None  # the second one has not looked at all

    async with first.session.use() as conn:
        pid = conn.get_server_pid()
    await owner.execute("SELECT pg_terminate_backend($1)", pid)
    await eventually(lambda: _true(first.session._lost.is_set()))
    await second.look()
    await second.look()
    assert await ended(mailing.conn, worker) == "dead"


async def test_a_watcher_that_hangs_is_done_without(mailing, other, owner, observe) -> None:
    """It keeps its lock of the watch, being alive as far as the server knows."""
    hung, second, third = await observe(), await observe(), await observe()
    _, worker = await holding(mailing, other, locked=False)
    await hung.look()
    await second.look()
    await owner.execute("UPDATE workers SET watched_at = clock() - interval '4 s' WHERE id = $1", hung.session.worker)
    await second.look()
    await third.look()
    assert await ended(mailing.conn, worker) is None
    await second.look()
    assert await ended(mailing.conn, worker) == "dead"
    watched = await owner.fetch("SELECT id FROM workers WHERE watched_at > clock() - interval '3 s'")
    assert [row["id"] for row in watched] == [second.session.worker]  # one is enough


async def test_when_nobody_holds_anything_it_stands_down_and_looks_at_the_work(mailing, other, observer) -> None:
    """What the others have deferred falls due some time, and this worker may be the only one left by then."""
    campaign, worker = await holding(mailing, other, locked=True)
    await observer.look()
    assert observer.reaper.needed.is_set()
    await mailing.conn.execute("SELECT release_claim(claim_id, worker_id) FROM claims")
    observer.session.wake.clear()
    await observer.look()

    assert not observer.reaper.needed.is_set()
    assert observer.session.wake.is_set()
    assert await mailing.conn.fetchval("SELECT pg_try_advisory_lock(lock_key('watch'))")
    assert await mailing.counts(campaign) == {"pending": 3}
    assert worker


def _true(found: bool) -> None:
    assert found
