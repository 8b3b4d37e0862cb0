"""Campaigns beside each other: each goes on, whatever the others do, and a sender keeps its rate. Counts, no times."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from postledger.database import Connection
from postledger.ledger import queue, senders
from postledger.ledger.queue import Delivery
from postledger.ledger.senders import Rate
from postledger.workers.dispatcher import Dispatcher
from postledger.workers.lanes import Lane
from postledger.workers.link import Link
from postledger.workers.permits import Permits
from postledger.workers.providers.null import NullProvider
from postledger.workers.session import Session
from tests import campaigns as calls
from tests.clock import NOON, set_clock, stop_clock
from tests.workers.clocks import Clock
from tests.workers.mailing import Mailing, addresses

URL = "null://?render=1"
NEVER = float("inf")


class Stepping(Dispatcher):
    """Stops where it would sleep, and says for how long."""

    slept = NEVER

    async def _serve(self) -> float:
        self.slept = await super()._serve()
        raise Asleep


class Asleep(Exception):  # noqa: N818 - no fault
    pass


class Worker:
    """A dispatcher on a clock of the test's; what it claims is kept until it is settled."""

    def __init__(self, mailing: Mailing, clock: Clock, concurrency: int) -> None:
        self.mailing = mailing
        self.clock = clock
        self.concurrency = concurrency
        self.held: list[Delivery] = []
        self.lanes: dict[int, Lane] = {}
        self.room = asyncio.Event()
        self.link = Link(mailing.database, "claims of the test")
        self.session = Session(mailing.database, self.link, on_buried=lambda: None)
        self.permits = Permits(self.session)
        self.dispatcher = Stepping(
            self.session,
            self.link,
            self.permits,
            lane_of=self.lane_of,
            hand_over=lambda rows, _: self.held.extend(rows),
            room=self.room,
            watch=asyncio.Event(),
            clock=clock,
        )

    async def lane_of(self, campaign: int) -> Lane:
        query = "SELECT sender_id FROM campaigns WHERE id = $1"
        sender = await self.mailing.conn.fetchval(query, campaign)
        if sender not in self.lanes:
            lane = Lane(NullProvider(renders=True), URL, self.concurrency, self.room, sender=sender, clock=self.clock)
            lane.opened()
            self.lanes[sender] = lane
        return self.lanes[sender]

    async def claim(self) -> list[Delivery]:
        """Works until it would sleep; what is new in its hands."""
        before = len(self.held)
        while True:
            try:
                await self.dispatcher.step()
            except Asleep:
                if self.dispatcher.slept > 0:
                    return self.held[before:]

    async def settle(self, campaigns: Callable[[int], bool] = lambda _: True) -> Counter[int]:
        """All that it holds of these campaigns is sent; how many of each."""
        rows = [row for row in self.held if campaigns(row.campaign_id)]
        self.held = [row for row in self.held if not campaigns(row.campaign_id)]
        for campaign in {row.campaign_id for row in rows}:
            mine = [row for row in rows if row.campaign_id == campaign]
            await calls.settle(self.mailing.conn, campaign, [calls.sent(row) for row in mine])
            for row in mine:
                self.permits.drop(row.claim_id)
            query = "SELECT sender_id FROM campaigns WHERE id = $1"
            sender = await self.mailing.conn.fetchval(query, campaign)
            self.lanes[sender].give_back(len(mine), campaign)
        return Counter(row.campaign_id for row in rows)


MakeWorker = Callable[..., Awaitable[Worker]]


@pytest.fixture
async def clock() -> Clock:
    return Clock()


@pytest.fixture
async def worker(mailing: Mailing, clock: Clock) -> AsyncIterator[MakeWorker]:
    """Makes workers that leave with the test."""
    made: list[Worker] = []

    async def make(concurrency: int = 24) -> Worker:
        made.append(Worker(mailing, clock, concurrency))
        await made[-1].session.open()
        return made[-1]

    yield make
    for one in made:
        await one.session.close()
        await one.link.close()


async def campaigns_of(mailing: Mailing, count: int, people: int, **settings: int) -> list[int]:
    return [
        await mailing.started(URL, addresses(people), name=f"campaign {n}", **settings) for n in range(1, count + 1)
    ]


async def test_twelve_at_once_each_go_on_in_every_round(mailing: Mailing, clock: Clock, worker: MakeWorker) -> None:
    one = await worker(24)
    ids = await campaigns_of(mailing, 12, 10)
    for round_number in range(1, 6):
        await one.claim()
        assert await one.settle() == dict.fromkeys(ids, 2), round_number
        clock.now += 0.1


async def test_with_fewer_slots_than_campaigns_they_take_turns(
    mailing: Mailing, clock: Clock, worker: MakeWorker
) -> None:
    one = await worker(5)
    ids = await campaigns_of(mailing, 12, 5)
    served = Counter[int]()
    for _ in range(12):
        await one.claim()
        served += await one.settle()
        assert max(served.values()) - min(served[campaign] for campaign in ids) <= 1
        clock.now += 0.1
    assert served == dict.fromkeys(ids, 5)


async def test_two_workers_serve_all_of_them(mailing: Mailing, clock: Clock, worker: MakeWorker) -> None:
    first, second = await worker(12), await worker(12)
    ids = await campaigns_of(mailing, 12, 8)
    for _ in range(4):
        await first.claim()
        await second.claim()
        assert await first.settle() + await second.settle() == dict.fromkeys(ids, 2)
        clock.now += 0.1


async def test_one_that_never_gets_on_leaves_the_others_their_slots(
    mailing: Mailing, clock: Clock, worker: MakeWorker
) -> None:
    """Its mails take for ever; with all slots in its hands the others would wait for ever."""
    one = await worker(12)
    slow, *others = await campaigns_of(mailing, 4, 30)
    for _ in range(10):
        await one.claim()
        assert sum(row.campaign_id == slow for row in one.held) <= 3
        await one.settle(lambda campaign: campaign != slow)
        clock.now += 0.1
    for campaign in others:
        assert await mailing.counts(campaign) == {"sent": 30}
    await one.claim()  # they are done: now it may have them all
    assert [row.campaign_id for row in one.held] == [slow] * 12


async def test_a_late_one_gets_its_share_of_what_comes_free(mailing: Mailing, clock: Clock, worker: MakeWorker) -> None:
    one = await worker(10)
    (early,) = await campaigns_of(mailing, 1, 50)
    assert len(await one.claim()) == 10
    late = await mailing.started(URL, addresses(50), name="late")
    one.session.wake.set()
    await one.settle()
    assert Counter(row.campaign_id for row in await one.claim()) == {early: 5, late: 5}


async def test_when_all_slots_hang_the_next_campaign_begins_at_once(
    mailing: Mailing, clock: Clock, worker: MakeWorker
) -> None:
    one = await worker(50)
    (hanging,) = await campaigns_of(mailing, 1, 200)
    await one.claim()
    for newcomer in ("second", "third"):
        campaign = await mailing.started(URL, addresses(20), name=newcomer)
        one.session.wake.set()
        while (await mailing.counts(campaign)).get("sent", 0) < 20:
            clock.now += 0.1
            assert await one.claim()
            await one.settle(lambda campaign: campaign != hanging)
    assert [row.campaign_id for row in one.held] == [hanging] * 48
    clock.now += 0.1
    assert await one.claim() == []  # the last ones are for others


async def test_priority_goes_before_turns(mailing: Mailing, clock: Clock, worker: MakeWorker) -> None:
    one = await worker(10)
    low = await mailing.started(URL, addresses(10), name="low")
    high = await mailing.started(URL, addresses(15), name="high", priority=1)
    order = []
    for _ in range(3):
        await one.claim()
        order.append(dict(await one.settle()))
        clock.now += 0.1
    assert order == [{high: 10}, {high: 5, low: 5}, {low: 5}]


async def test_nothing_is_written_for_whose_turn_it_is(mailing: Mailing, clock: Clock, worker: MakeWorker) -> None:
    one = await worker(24)
    await campaigns_of(mailing, 12, 4)
    before = await mailing.conn.fetch("SELECT ctid, xmin FROM campaigns ORDER BY id")
    await one.claim()
    assert await mailing.conn.fetch("SELECT ctid, xmin FROM campaigns ORDER BY id") == before


class TestRate:
    STEP = 0.05

    async def limited(self, mailing: Mailing, owner: Connection, rate: str) -> None:
        await stop_clock(owner)
        await senders.set_rate(mailing.conn, await senders.keep(mailing.conn, URL), Rate.read(rate))

    @asynccontextmanager
    async def passing(self, owner: Connection, clock: Clock) -> AsyncIterator[None]:
        """The clocks of database and workers go on together."""
        yield
        clock.now += self.STEP
        await set_clock(owner, NOON + timedelta(seconds=clock.now - 100))

    async def run(self, workers: Sequence[Worker], owner: Connection, clock: Clock, steps: int) -> list[Counter[int]]:
        """What was sent in each step, by campaign."""
        sent = []
        for _ in range(steps):
            async with self.passing(owner, clock):
                for one in workers:
                    await one.claim()
                sent.append(sum([await one.settle() for one in workers], Counter()))
        return sent

    @pytest.mark.parametrize(("rate", "count"), [("100/s", 2), ("100/s", 1), ("600/m", 3)])
    async def test_workers_together_keep_it(
        self, mailing: Mailing, owner: Connection, clock: Clock, worker: MakeWorker, rate: str, count: int
    ) -> None:
        await self.limited(mailing, owner, rate)
        await campaigns_of(mailing, 2, 200)
        workers = [await worker(50) for _ in range(count)]
        sent = [step.total() for step in await self.run(workers, owner, clock, 60)]
        per_second = 100 if rate == "100/s" else 10
        seconds = [sum(sent[begin : begin + 20]) for begin in range(41)]
        assert max(seconds) <= per_second * 1.1
        assert sum(sent) == pytest.approx(3 * per_second, rel=0.1)

    async def test_nobody_claims_what_it_cannot_begin(
        self, mailing: Mailing, owner: Connection, clock: Clock, worker: MakeWorker
    ) -> None:
        await self.limited(mailing, owner, "1/m")
        (campaign,) = await campaigns_of(mailing, 1, 5)
        workers = [await worker(50), await worker(50)]
        assert [len(await one.claim()) for one in workers] == [1, 0]
        assert workers[1].dispatcher.slept == pytest.approx(workers[1].session.sweep_in)
        assert await mailing.counts(campaign) == {"sending": 1, "pending": 4}

    async def test_it_is_shared_by_all_campaigns_of_the_sender(
        self, mailing: Mailing, owner: Connection, clock: Clock, worker: MakeWorker
    ) -> None:
        """Twelve of them, and each goes on in every second."""
        await self.limited(mailing, owner, "100/s")
        ids = await campaigns_of(mailing, 12, 30)
        one = await worker(50)
        sent = await self.run([one], owner, clock, 60)
        for begin in range(0, 60, 20):
            second = sum(sent[begin : begin + 20], Counter[int]())
            assert set(second) == set(ids)
            assert second.total() <= 110

    async def test_one_row_is_written_a_few_times_and_not_for_each_claim(
        self, mailing: Mailing, owner: Connection, clock: Clock, worker: MakeWorker
    ) -> None:
        await self.limited(mailing, owner, "100/s")
        (campaign,) = await campaigns_of(mailing, 1, 300)
        pieces = Counter[str]()
        one = await worker(50)
        for _ in range(60):
            async with self.passing(owner, clock):
                await one.claim()
                await one.settle()
                pieces[str(await mailing.conn.fetchval("SELECT free_at FROM rate_leases"))] += 1
        claims = await mailing.conn.fetchval(
            "SELECT count(DISTINCT body ->> 'claim_id') FROM events WHERE campaign_id = $1 AND type = 'Claimed'",
            campaign,
        )
        assert claims >= 28
        assert len(pieces) <= 8

    async def test_what_a_dead_worker_has_taken_along_hinders_nobody(
        self, mailing: Mailing, owner: Connection, clock: Clock, worker: MakeWorker
    ) -> None:
        """Its slots are its own, and its piece of the sender's time is over in a second: rows come back by no gate."""
        await self.limited(mailing, owner, "50/s")
        (campaign,) = await campaigns_of(mailing, 1, 5)
        first, second = await worker(5), await worker(5)
        assert len(await first.claim()) == 5
        await first.session.close()
        for orphan in await mailing.conn.fetch(queue.sql.orphaned):
            await mailing.conn.fetchval(queue.sql.reclaim, *orphan)
        assert await mailing.counts(campaign) == {"pending": 5}
        clock.now += 10
        await set_clock(owner, NOON + timedelta(seconds=clock.now - 100))
        second.session.wake.set()
        assert len(await second.claim()) == 5
        await second.settle()
        assert await mailing.counts(campaign) == {"sent": 5}

    async def test_another_rate_is_in_force_at_the_next_look(
        self, mailing: Mailing, owner: Connection, clock: Clock, worker: MakeWorker
    ) -> None:
        await self.limited(mailing, owner, "1/d")
        (campaign,) = await campaigns_of(mailing, 1, 100)
        one = await worker(50)
        assert len(await one.claim()) == 1
        await senders.set_rate(mailing.conn, next(iter(one.lanes)), Rate.read("100/s"))
        one.session.wake.set()
        assert len(await one.claim()) == 10
        await senders.set_rate(mailing.conn, next(iter(one.lanes)), None)
        one.session.wake.set()
        assert len(await one.claim()) == 37
        assert campaign
