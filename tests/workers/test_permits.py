"""When a send may begin: permits asked of a real database, by a clock that the test moves."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from postledger.database import Connection
from postledger.ledger import queue
from postledger.ledger.queue import Delivery
from postledger.workers.link import Link
from postledger.workers.permits import FRESH, Permits
from postledger.workers.providers.base import Withheld
from postledger.workers.session import Session
from tests import campaigns
from tests.workers.clocks import Clock
from tests.workers.mailing import Mailing, addresses

LEASE_IN = timedelta(seconds=60)


class Desk:
    """A worker's session, its permits, and what it has claimed."""

    def __init__(self, mailing: Mailing) -> None:
        self.mailing = mailing
        self.clock = Clock()
        self.helper = Link(mailing.database, "helper")
        self.session = Session(mailing.database, self.helper, on_buried=self.forget)
        self.permits = Permits(self.session, lease_in=LEASE_IN, clock=self.clock)

    def forget(self) -> None:
        self.permits.forget_all()

    async def claim(self, campaign: int, limit: int = 10) -> list[Delivery]:
        """Rows that are claimed and held, the answer having come just now."""
        claim = await campaigns.claim(self.mailing.conn, campaign, self.session.worker, limit)
        self.permits.hold(claim.rows)
        return list(claim.rows)

    async def ask(self) -> None:
        """One permit, asked for a moment later."""
        self.clock.now += 0.001
        self.permits._wanted.set()
        await self.permits.step()

    async def begins(self, delivery: Delivery) -> bool:
        """Whether a send may begin without another permit. Raises Withheld."""
        beginning = asyncio.ensure_future(self.permits.begin(delivery))
        for _ in range(3):
            await asyncio.sleep(0)
        if not beginning.done():
            beginning.cancel()
            with suppress(asyncio.CancelledError):
                await beginning
            return False
        await beginning
        return True

    async def refusal(self, delivery: Delivery) -> str:
        with pytest.raises(Withheld) as withheld:
            await self.begins(delivery)
        return withheld.value.reason


@pytest.fixture
async def desk(mailing: Mailing) -> AsyncIterator[Desk]:
    opened = Desk(mailing)
    await opened.session.open()
    yield opened
    await opened.session.close()
    await opened.helper.close()


async def test_no_send_begins_before_the_first_permit(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)

    assert not await desk.begins(row)
    await desk.ask()
    assert await desk.begins(row)


async def test_no_send_begins_on_a_permit_older_than_its_claim(desk: Desk) -> None:
    """Whoever was suppressed between the two would be mailed."""
    campaign = await desk.mailing.started("null://", addresses(2))
    (first,) = await desk.claim(campaign, 1)
    await desk.ask()
    desk.clock.now += 0.1
    (second,) = await desk.claim(campaign, 1)

    assert await desk.begins(first)
    assert not await desk.begins(second)
    await desk.ask()
    assert await desk.begins(second)


async def test_a_permit_asked_in_the_moment_of_the_answer_is_too_old(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)
    desk.permits._wanted.set()
    await desk.permits.step()

    assert not await desk.begins(row)


async def test_a_permit_is_good_for_less_than_a_second(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)
    await desk.ask()
    asked_at = desk.clock.now

    desk.clock.now = asked_at + FRESH - 0.001
    assert await desk.begins(row)
    desk.clock.now = asked_at + FRESH + 0.001
    assert not await desk.begins(row)


async def test_its_age_counts_from_the_moment_it_was_asked_for(desk: Desk) -> None:
    """Not from the wish for it, which had to wait for the connection, and not from its answer."""
    campaign = await desk.mailing.started("null://", addresses(1))
    await desk.claim(campaign)
    async with desk.session.use():
        asking = asyncio.ensure_future(desk.ask())
        for _ in range(5):
            await asyncio.sleep(0)
        desk.clock.now += 5
    await asking
    assert desk.permits.last is not None
    assert desk.permits.last.asked_at == desk.clock.now


@pytest.mark.parametrize(("event", "reason"), [("Paused", "campaign"), ("Cancelled", "campaign")])
async def test_a_campaign_that_stopped(desk: Desk, event: str, reason: str) -> None:
    campaign = await desk.mailing.started("null://", addresses(1))
    other = await desk.mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)
    (neighbour,) = await desk.claim(other)
    await desk.mailing.change(campaign, event)
    await desk.ask()

    assert await desk.refusal(row) == reason
    assert await desk.begins(neighbour)


async def test_who_was_suppressed_after_the_claim(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", ["ada@example.net", "bob@example.net"])
    ada, bob = await desk.claim(campaign)
    await desk.mailing.conn.execute("SELECT suppress('Ada@example.net', 'complaint', 'test')")
    await desk.ask()

    assert await desk.refusal(ada) == "suppressed"
    assert await desk.begins(bob)
    assert await desk.permits.begin_batch([ada, bob]) == ["suppressed", None]


async def test_a_claim_that_is_gone(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)
    await desk.mailing.conn.execute(queue.sql.release_claim, row.claim_id, desk.session.worker)
    await desk.ask()

    assert await desk.refusal(row) == "lost"
    assert not desk.permits.holds


async def test_random_order_of_everything(desk: Desk) -> None:
    """P9 and P10: whatever happens when, no send begins on a permit that cannot have seen what it had to see."""
    dice = random.Random(7)
    begun = refused = waited = 0
    for turn in range(60):
        campaign = await desk.mailing.started("null://", addresses(1), name=f"turn {turn}")
        (row,) = await desk.claim(campaign)
        answered_at = desk.clock.now
        stopped_at = float("inf")
        asked_at = float("-inf")
        for _ in range(dice.randrange(1, 6)):
            desk.clock.now += dice.choice((0.01, 0.3, 0.79, 1.5))
            match dice.choice(("ask", "ask", "stop", "begin")):
                case "ask":
                    await desk.ask()
                    asked_at = desk.clock.now
                case "stop" if stopped_at == float("inf"):
                    await desk.mailing.change(campaign, "Paused")
                    stopped_at = desk.clock.now
                case _:
                    try:
                        if not await desk.begins(row):
                            waited += 1
                            continue
                    except Withheld:
                        assert asked_at > stopped_at
                        refused += 1
                        break
                    assert answered_at < asked_at < stopped_at
                    assert desk.clock.now - asked_at < FRESH
                    begun += 1
    assert min(begun, refused, waited) >= 3


async def test_while_outcomes_cannot_be_recorded_nothing_begins(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)
    await desk.ask()

    desk.permits.block(True)
    beginning = asyncio.ensure_future(desk.permits.begin(row))
    await asyncio.sleep(0)
    await desk.ask()
    assert not beginning.done()
    assert not desk.permits._wanted.is_set()  # or permits would be asked for as fast as the server answers

    desk.permits.block(False)
    await beginning


async def test_who_waits_is_told_of_the_shutdown(desk: Desk) -> None:
    campaign = await desk.mailing.started("null://", addresses(2))
    waiting, later = await desk.claim(campaign)
    beginning = asyncio.ensure_future(desk.permits.begin(waiting))
    await asyncio.sleep(0)

    desk.permits.close("shutdown")
    with pytest.raises(Withheld, match="shutdown"):
        await beginning
    await desk.ask()
    assert await desk.refusal(later) == "shutdown"


async def test_a_claim_nobody_knows_of_is_released_at_once(desk: Desk) -> None:
    """Its call was given up on, and had gone through all the same. One that is still being asked for is left alone."""
    mailing = desk.mailing
    campaign = await mailing.started("null://", addresses(3))
    await desk.claim(campaign, 1)
    await campaigns.claim(mailing.conn, campaign, desk.session.worker, 1)
    asking = uuid4()
    desk.permits.asking.add(asking)
    await campaigns.claim(mailing.conn, campaign, desk.session.worker, 1, asking)
    await desk.ask()

    assert await mailing.counts(campaign) == {"pending": 1, "sending": 2}
    assert await mailing.claims() == 2
    assert (await mailing.happened(campaign))["Released"] == 1


async def test_a_claim_is_held_until_its_last_row_is_settled(desk: Desk) -> None:
    """Named in every permit until then; or it would be released as one that nobody knows of."""
    campaign = await desk.mailing.started("null://", addresses(2))
    rows = await desk.claim(campaign)
    desk.permits.drop(rows[0].claim_id)
    await desk.ask()
    assert await desk.mailing.counts(campaign) == {"sending": 2}
    assert desk.permits.holds

    desk.permits.drop(rows[1].claim_id)
    assert not desk.permits.holds


async def test_permits_renew_the_lease(desk: Desk) -> None:
    mailing = desk.mailing
    campaign = await mailing.started("null://", addresses(1))
    await desk.claim(campaign)

    async def age_and_ask(seconds: float) -> bool:
        await mailing.conn.execute("UPDATE workers SET seen_at = clock() - interval '50 s'")
        desk.clock.now += seconds
        await desk.ask()
        return await mailing.conn.fetchval("SELECT seen_at > clock() - interval '40 s' FROM workers")

    assert await age_and_ask(0)
    assert not await age_and_ask(10)
    assert await age_and_ask(5)


async def test_one_declared_dead_begins_a_new_life_and_sends_nothing_of_the_old(desk: Desk) -> None:
    mailing = desk.mailing
    campaign = await mailing.started("null://", addresses(1))
    (row,) = await desk.claim(campaign)
    await desk.ask()
    former = desk.session.worker
    await mailing.conn.execute("UPDATE workers SET ended = 'dead', ended_at = clock()")

    desk.clock.now += 1
    beginning = asyncio.ensure_future(desk.permits.begin(row))
    await asyncio.sleep(0)
    await desk.ask()
    assert not beginning.done()
    await desk.session.step()
    with pytest.raises(Withheld, match="lost"):
        await beginning
    assert desk.session.worker != former


class TestStrays:
    """Claims under our name whose answer we never had: a call that was given up, and went through all the same."""

    @pytest.fixture
    async def held(self, desk: Desk) -> Delivery:
        """A row that the worker knows of; without one it asks for no permit."""
        return (await desk.claim(await desk.mailing.started("null://", addresses(1))))[0]

    async def stray(self, desk: Desk) -> Delivery:
        campaign = await desk.mailing.started("null://", addresses(3))
        claim = await campaigns.claim(desk.mailing.conn, campaign, desk.session.worker, 3)
        return claim.rows[0]

    async def test_one_is_released_with_the_next_permit(self, desk: Desk, held: Delivery) -> None:
        row = await self.stray(desk)
        await desk.ask()
        assert await desk.mailing.counts(row.campaign_id) == {"pending": 3}
        assert await desk.mailing.counts(held.campaign_id) == {"sending": 1}
        assert (await desk.mailing.happened(row.campaign_id))["Released"] == 3

    async def test_one_that_is_still_asked_for_is_left_alone(self, desk: Desk, held: Delivery) -> None:
        row = await self.stray(desk)
        desk.permits.asking.add(row.claim_id)
        await desk.ask()
        assert await desk.mailing.counts(row.campaign_id) == {"sending": 3}
        assert held

    async def test_one_that_is_locked_makes_no_permit_late(self, desk: Desk, held: Delivery, owner: Connection) -> None:
        row = await self.stray(desk)
        number = desk.session.number
        async with owner.transaction():
            await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", row.campaign_id)
            for _ in range(2):
                await desk.ask()
                assert await desk.begins(held)
        assert desk.session.number == number
        assert await desk.mailing.counts(row.campaign_id) == {"sending": 3}
        await desk.ask()
        assert await desk.mailing.counts(row.campaign_id) == {"pending": 3}

    async def test_one_that_makes_trouble_keeps_the_others_in_order(
        self, desk: Desk, held: Delivery, owner: Connection
    ) -> None:
        bad, good = await self.stray(desk), await self.stray(desk)
        await owner.execute(f"""
            CREATE FUNCTION stand_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
            CREATE TRIGGER stand_in_the_way BEFORE INSERT ON events_1 FOR EACH ROW
            WHEN (new.campaign_id = {bad.campaign_id}) EXECUTE FUNCTION stand_in_the_way()""")
        with capture_logs() as logs:
            await desk.ask()
        assert await desk.begins(held)
        assert [await desk.mailing.counts(row.campaign_id) for row in (bad, good)] == [{"sending": 3}, {"pending": 3}]
        assert "stray_claim_not_released" in [entry["event"] for entry in logs]
