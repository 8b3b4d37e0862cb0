"""What is claimed when: nothing that is due waits for a sweep, nothing that is not is asked for."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from postledger.database import Connection
from postledger.errors import ConfigurationError
from postledger.ledger import scheduling
from postledger.ledger.queue import Delivery, Work
from postledger.workers.dispatcher import Dispatcher
from postledger.workers.lanes import Lane
from postledger.workers.link import Link
from postledger.workers.permits import Permits
from postledger.workers.providers.null import NullProvider
from postledger.workers.session import Session
from tests import campaigns
from tests.campaigns import deferred, people, sent
from tests.eventually import eventually
from tests.workers.mailing import Mailing, addresses

WITHIN = 20.0
"""Less than the 30 s after which an idle worker looks for itself: what comes sooner was woken, not swept."""

Hook = Callable[[], Awaitable[None]]


async def nothing() -> None:
    """No hook."""


class Watched(Dispatcher):
    """Stops at the moments where a wake-up could be lost."""

    before_look: Hook = staticmethod(nothing)
    after_look: Hook = staticmethod(nothing)
    before_sleep: Hook = staticmethod(nothing)
    looks = 0
    rounds = 0

    async def _make_plan(self) -> None:
        await self.before_look()
        self.looks += 1
        await super()._make_plan()
        await self.after_look()

    async def _serve(self) -> float:
        self.rounds += 1
        again_in = await super()._serve()
        await self.before_sleep()
        return again_in


class Stopped(Session):
    """Stops once more: when the answer to the look is here and nobody has seen it yet."""

    in_look: Hook = staticmethod(nothing)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        async with super().use() as conn:
            yield conn
            await self.in_look()


class Desk:
    """A dispatcher at work for one lane; what it has claimed is handed over to a list."""

    def __init__(self, mailing: Mailing, concurrency: int = 10, only: int | None = None) -> None:
        self.mailing = mailing
        self.rows: list[Delivery] = []
        self.room = asyncio.Event()
        self.watch = asyncio.Event()
        self.link = Link(mailing.database, "claims of the test")
        self.ends = Link(mailing.database, "ends of the test", on_used=self.tried_to_end)
        self.tries = 0
        self.session = Stopped(mailing.database, self.link, on_buried=lambda: None)
        self.permits = Permits(self.session)
        self.lane = Lane(NullProvider(renders=True), "null://?render=1", concurrency, self.room)
        self.lane.opened()
        self.unusable: set[int] = set()
        self.strange: set[int] = set()
        self.dispatcher = Watched(
            self.session,
            self.link,
            self.permits,
            lane_of=self.lane_of,
            hand_over=lambda rows, _: self.rows.extend(rows),
            room=self.room,
            watch=self.watch,
            ends=self.ends,
            only=only,
        )

    def tried_to_end(self) -> None:
        self.tries += 1

    async def lane_of(self, campaign: int) -> Lane:
        if campaign in self.strange:
            raise ZeroDivisionError("a fault of a provider from elsewhere")
        if campaign in self.unusable:
            raise ConfigurationError("sender URL: the password is env:NAME, but the variable NAME is not set")
        return self.lane

    async def work(self) -> None:
        while True:
            await self.dispatcher.step()

    async def round(self) -> None:
        """One step, up to where it would sleep."""
        asleep = asyncio.Event()

        async def say() -> None:
            asleep.set()

        self.dispatcher.before_sleep = say
        step, sleep = asyncio.ensure_future(self.dispatcher.step()), asyncio.ensure_future(asleep.wait())
        await asyncio.wait([step, sleep], return_when=asyncio.FIRST_COMPLETED)
        step.cancel()
        sleep.cancel()
        await asyncio.wait([step, sleep])

    async def settle(self, rows: Sequence[Delivery]) -> None:
        """As a deliverer does it: committed, then free."""
        for row in rows:
            await campaigns.settle(self.mailing.conn, row.campaign_id, [sent(row)])
            self.permits.drop(row.claim_id)
            self.lane.give_back(1, row.campaign_id)

    async def until_claimed(self, count: int) -> None:
        def claimed() -> None:
            assert len(self.rows) == count

        await eventually(claimed, WITHIN)


@pytest.fixture
async def desk(mailing: Mailing) -> AsyncIterator[Desk]:
    desk = Desk(mailing)
    await desk.session.open()
    yield desk
    await desk.dispatcher.endings.close()
    await desk.session.close()
    await desk.link.close()
    await desk.ends.close()


@pytest.fixture
async def working(desk: Desk) -> AsyncIterator[Desk]:
    work = asyncio.create_task(desk.work())
    yield desk
    await stopped(work)


async def stopped(work: asyncio.Task[None]) -> None:
    work.cancel()
    await asyncio.wait([work])


class TestNoWakeUpIsLost:
    """Rows are committed right where their wake-up could get lost; it would cost the 30 s until the next sweep.

    Nothing is settled meanwhile, or a slot that comes free would do what the wake-up failed to do.
    """

    REPEATS = 200

    @pytest.mark.parametrize("moment", ["before_look", "in_look", "after_look", "before_sleep"])
    async def test_between_the_look_and_the_sleep(self, mailing: Mailing, moment: str) -> None:
        async with self.working(mailing) as desk:
            campaign, dice = await mailing.started("null://", [], kind="standing"), random.Random(moment)
            inserted = 0

            async def insert() -> None:
                nonlocal inserted
                if inserted == len(desk.rows) < self.REPEATS:
                    inserted += 1
                    await campaigns.enqueue(mailing.conn, campaign, people(1, first=inserted))
                    await asyncio.sleep(dice.choice((0, 0, 0.001, 0.003)))  # heard before we go on, or after

            setattr(desk.session if moment == "in_look" else desk.dispatcher, moment, insert)
            async with asyncio.timeout(WITHIN):
                while len(desk.rows) < self.REPEATS:
                    before = inserted
                    await asyncio.sleep(0.01)
                    if before == inserted == len(desk.rows):
                        desk.session.wake.set()  # all found, and it sleeps: on to the next one
            assert inserted == self.REPEATS

    async def test_at_any_moment(self, mailing: Mailing) -> None:
        async with self.working(mailing) as desk:
            campaign, dice = await mailing.started("null://", [], kind="standing"), random.Random(3)
            for n in range(1, self.REPEATS + 1):
                await campaigns.enqueue(mailing.conn, campaign, people(1, first=n))
                if n % 10 == 0:
                    await desk.until_claimed(n)
                await asyncio.sleep(dice.choice((0, 0, 0.0005, 0.001, 0.002, 0.004)))
            await desk.until_claimed(self.REPEATS)

    @asynccontextmanager
    async def working(self, mailing: Mailing) -> AsyncIterator[Desk]:
        desk = Desk(mailing, concurrency=3 * self.REPEATS)
        await desk.session.open()
        work = asyncio.create_task(desk.work())
        try:
            yield desk
        finally:
            await stopped(work)
            await desk.session.close()
            await desk.link.close()


async def test_a_row_that_another_holds_is_asked_for_again(working: Desk, owner: Connection) -> None:
    campaign = await working.mailing.written("null://", addresses(3))
    async with owner.transaction():
        query = "SELECT FROM recipient_queue WHERE campaign_id = $1 ORDER BY delivery_id LIMIT 1 FOR UPDATE"
        await owner.execute(query, campaign)
        await working.mailing.change(campaign, "Started")
        await working.until_claimed(2)
    await working.until_claimed(3)


async def test_a_campaign_that_another_holds_is_asked_for_again(working: Desk, owner: Connection) -> None:
    campaign = await working.mailing.written("null://", addresses(3))
    async with owner.transaction():
        await working.mailing.change(campaign, "Started")
        await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", campaign)
        await asyncio.sleep(0.1)
        claimed_meanwhile = len(working.rows)
    await working.until_claimed(3)
    assert claimed_meanwhile in {0, 3}  # all or nothing, whoever was first


async def test_what_falls_due_is_claimed_then(working: Desk) -> None:
    """By its own timer: nobody says a word when a retry comes round."""
    mailing = working.mailing
    campaign = await mailing.started("null://", addresses(2))
    await working.until_claimed(2)
    first, second = working.rows
    for row, wait in ((first, timedelta(seconds=0.3)), (second, timedelta(seconds=0.9))):
        await campaigns.settle(mailing.conn, campaign, [deferred(row, wait)])
        working.permits.drop(row.claim_id)
    working.lane.give_back(2, campaign)

    await working.until_claimed(4)
    assert [row.delivery_id for row in working.rows[2:]] == [first.delivery_id, second.delivery_id]


async def test_until_something_falls_due_nothing_is_asked(desk: Desk) -> None:
    """It sleeps to the moment that the database has named: a start in a second costs what one in a year does."""
    asked: list[str] = []
    for link in (desk.link, desk.session):
        async with link.use() as conn:
            conn.add_query_logger(lambda query: asked.append(query.query))
    campaign = await desk.mailing.written("null://", addresses(1))
    work = asyncio.create_task(desk.work())
    due = await desk.mailing.conn.fetchval("SELECT clock()") + timedelta(seconds=1.5)
    await scheduling.schedule(desk.mailing.conn, campaign, due)
    await desk.until_claimed(1)
    await stopped(work)
    assert sum("wake_campaign" in query for query in asked) == 1
    # At the start, when it was told, when it was due, and when it had begun: twice, since that is also notified.
    assert sum("next_work" in query for query in asked) <= 6, asked
    assert sum("claim(" in query for query in asked) <= 2, asked


async def test_what_falls_due_while_a_lane_is_full_costs_no_rounds(desk: Desk, working: Desk) -> None:
    """The plan is a moment old when something else falls due: it is renewed, not gone over again and again."""
    mailing = desk.mailing
    busy = await mailing.started("null://", addresses(30))
    await desk.until_claimed(10)
    worker = await campaigns.enlist(mailing.conn)
    other = await mailing.started("null://", addresses(1), name="other", priority=-1)
    (row,) = (await campaigns.claim(mailing.conn, other, worker)).rows
    await campaigns.settle(mailing.conn, other, [deferred(row, timedelta(seconds=0.2))])
    await mailing.conn.execute("SELECT wake()")
    await asyncio.sleep(0.15)
    before = desk.dispatcher.rounds
    await asyncio.sleep(0.5)

    assert desk.dispatcher.rounds - before <= 10
    assert await mailing.counts(busy) == {"pending": 20, "sending": 10}


async def test_it_claims_no_more_than_there_are_slots(working: Desk) -> None:
    campaign = await working.mailing.started("null://", addresses(25))
    await working.until_claimed(10)
    assert await working.mailing.counts(campaign) == {"pending": 15, "sending": 10}

    await working.settle(working.rows[:5])
    await working.until_claimed(15)
    await working.settle(working.rows[5:])
    await working.until_claimed(25)
    await working.settle(working.rows[15:])
    await working.mailing.until(campaign, "completed")


async def test_the_higher_priority_goes_first(desk: Desk) -> None:
    low = await desk.mailing.started("null://", addresses(10))
    high = await desk.mailing.started("null://", addresses(10), priority=1)
    await desk.round()
    assert {row.campaign_id for row in desk.rows} == {high}

    await desk.settle(desk.rows)
    await desk.round()
    await desk.round()
    assert {row.campaign_id for row in desk.rows[10:]} == {low}


async def test_only_its_own_campaign(mailing: Mailing) -> None:
    mine = await mailing.written("null://", addresses(1))
    desk = Desk(mailing, only=mine)
    await desk.session.open()
    other = await mailing.started("null://", addresses(1))
    await mailing.change(mine, "Started")
    await desk.round()
    assert [row.campaign_id for row in desk.rows] == [mine]
    assert await mailing.counts(other) == {"pending": 1}
    await desk.session.close()
    await desk.link.close()


@pytest.mark.parametrize("usable", [True, False])
async def test_a_cancelled_campaign_is_swept_whether_its_sender_works_or_not(working: Desk, usable: bool) -> None:
    """Waiting rows and those that come back, due or not."""
    mailing = working.mailing
    campaign = await mailing.started("null://", addresses(4))
    worker = await campaigns.enlist(mailing.conn)
    await working.until_claimed(4)
    if not usable:
        working.unusable.add(campaign)
    row = working.rows[0]
    await campaigns.settle(mailing.conn, campaign, [deferred(row, timedelta(hours=1))])
    await mailing.change(campaign, "Cancelled")
    await mailing.until_counts(campaign, cancelled=1, sending=3)
    await campaigns.settle(mailing.conn, campaign, [deferred(r, timedelta(hours=1)) for r in working.rows[1:]])
    working.room.set()
    await mailing.until_counts(campaign, cancelled=4)

    async def swept() -> None:
        assert await mailing.conn.fetchval("SELECT swept_at IS NOT NULL FROM campaigns WHERE id = $1", campaign)

    await eventually(swept)
    assert worker


async def test_one_that_cannot_be_served_is_told_of_once(working: Desk) -> None:
    campaign = await working.mailing.written("null://", addresses(1))
    working.unusable.add(campaign)
    with capture_logs() as logs:
        await working.mailing.change(campaign, "Started")
        for _ in range(5):
            looks = working.dispatcher.looks
            await working.mailing.conn.execute("SELECT wake()")
            await eventually(lambda looks=looks: _true(working.dispatcher.looks > looks))
    assert [entry["campaign"] for entry in logs if entry["event"] == "campaign_cannot_be_served"] == [campaign]

    working.unusable.clear()
    await working.mailing.conn.execute("SELECT wake()")
    await working.until_claimed(1)

    with capture_logs() as logs:
        working.unusable.add(campaign)  # once more
        await campaigns.enqueue(working.mailing.conn, campaign, people(1, first=99))
        await eventually(lambda: _true("campaign_cannot_be_served" in [entry["event"] for entry in logs]))


@pytest.mark.parametrize("fault", ["its lane", "its claim", "its end"])
async def test_one_campaign_that_makes_trouble_holds_up_no_other(working: Desk, owner: Connection, fault: str) -> None:
    mailing = working.mailing
    count = 0 if fault == "its end" else 3
    bad = await mailing.written("null://", addresses(count), priority=1)
    if fault == "its lane":
        working.strange.add(bad)
    else:
        await owner.execute(f"""
            CREATE FUNCTION stand_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
            CREATE TRIGGER stand_in_the_way BEFORE INSERT ON events_1 FOR EACH ROW
            WHEN (new.campaign_id = {bad} AND new.type IN ('Claimed', 'Completed'))
            EXECUTE FUNCTION stand_in_the_way()""")
    await mailing.change(bad, "Started")
    good = await mailing.started("null://", addresses(4))
    await working.until_claimed(4)
    assert {row.campaign_id for row in working.rows} == {good}

    working.strange.clear()
    await owner.execute("DROP TRIGGER IF EXISTS stand_in_the_way ON events_1")
    await working.until_claimed(4 + count)
    if not count:
        await mailing.until(bad, "completed")


async def test_an_end_that_takes_long_holds_up_nobody(working: Desk, owner: Connection) -> None:
    """The proof counts every row of a huge campaign."""
    mailing = working.mailing
    huge = await mailing.written("null://", [], priority=1)
    await owner.execute(f"""
        CREATE FUNCTION count_for_long() RETURNS trigger LANGUAGE plpgsql
        AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN new; END $$;
        CREATE TRIGGER count_for_long BEFORE INSERT ON events_1 FOR EACH ROW
        WHEN (new.campaign_id = {huge} AND new.type = 'Completed') EXECUTE FUNCTION count_for_long()""")
    endings = working.dispatcher.endings
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock(4711)")
        await mailing.change(huge, "Started")
        await eventually(lambda: _true(huge in endings.under_way))
        await mailing.started("null://", addresses(4))
        await working.until_claimed(4)
        assert await mailing.status(huge) == "sending"
        assert not working.dispatcher.rest.is_set()  # who ends when all is done does not leave this undone
    await mailing.until(huge, "completed")
    await eventually(lambda: _true(not endings.under_way))


async def test_an_end_waits_for_who_adds_people_and_keeps_its_connection(working: Desk, owner: Connection) -> None:
    mailing = working.mailing
    campaign = await mailing.started("null://", addresses(1))
    await working.until_claimed(1)
    with capture_logs() as logs:
        async with mailing.database.connection() as adding, adding.transaction():
            await adding.execute("SELECT pg_advisory_xact_lock_shared(lock_key('campaign', $1))", campaign)
            await working.settle(working.rows)
            await eventually(lambda: _true(working.tries >= 2))  # again and again, by itself
            assert not working.dispatcher.rest.is_set()
            assert await mailing.status(campaign) == "sending"
        await mailing.until(campaign, "completed", WITHIN)
    assert not [entry for entry in logs if entry["log_level"] != "info"]


async def test_a_claim_whose_id_is_taken_is_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its lost call has gone through in a former life of this worker: those rows are for others to free."""
    mailing = desk.mailing
    campaign = await mailing.started("null://", addresses(12))
    former = await campaigns.enlist(mailing.conn)
    taken = (await campaigns.claim(mailing.conn, campaign, former, 2)).rows[0].claim_id
    ids = iter([taken])
    real = __import__("uuid").uuid4
    monkeypatch.setattr("postledger.workers.dispatcher.uuid4", lambda: next(ids, None) or real())
    await desk.round()
    assert desk.rows == []
    await desk.round()
    assert len(desk.rows) == 10
    assert desk.permits.asking == set()


async def test_one_declared_dead_gets_nothing_and_begins_a_new_life(desk: Desk, owner: Connection) -> None:
    await desk.mailing.started("null://", addresses(3))
    former = desk.session.worker
    await owner.execute("UPDATE workers SET ended = 'dead', ended_at = clock()")
    await desk.round()
    assert desk.rows == []

    await desk.session.step()
    await desk.round()
    assert len(desk.rows) == 3
    assert desk.session.worker != former


@pytest.mark.parametrize(
    ("work", "only", "rests"),
    [
        (Work([], [], None, [], False), None, True),
        (Work([1], [], None, [], False), None, False),
        (Work([], [1], None, [], False), None, False),
        (Work([], [], timedelta(hours=5), [], False), None, False),
        (Work([], [], None, [], True), None, False),
        (Work([], [], None, [], True), 1, True),
        (Work([], [], None, [], False, waking=[1]), None, False),
        (Work([], [], None, [], False, wake_in=timedelta(days=30)), None, True),
    ],
)
async def test_when_there_is_nothing_left_to_do(mailing: Mailing, work: Work, only: int | None, rests: bool) -> None:
    """Claims of others count for who serves everybody: their worker may be dead, and nobody else there to see it."""
    desk = Desk(mailing, only=only)
    assert desk.dispatcher._is_idle(work) == rests


async def test_a_claim_renews_a_lease_that_has_run_out(desk: Desk, owner: Connection) -> None:
    """An idle worker writes nothing. Its first claim must not be the evidence of its death."""
    campaign = await desk.mailing.written("null://", addresses(1))
    await owner.execute("UPDATE workers SET seen_at = clock() - interval '1 hour'")
    await desk.mailing.change(campaign, "Started")
    await desk.round()
    assert len(desk.rows) == 1
    observer = await campaigns.enlist(desk.mailing.conn)
    probes = await owner.fetch("SELECT overdue FROM probe_workers($1, interval '60 s')", observer)
    assert [probe["overdue"] for probe in probes] == [False]


def _true(found: bool) -> None:
    assert found
