"""Workers and time: starts, pauses and quotas by the database's clock, whatever the worker's own says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from postledger.database import Connection
from postledger.demo.behaviours import Accept, Answer, Behaviour
from postledger.events.text import write_moment
from postledger.ledger import scheduling
from postledger.workers.worker import Worker
from tests.clock import NOON, set_clock, stop_clock
from tests.eventually import eventually
from tests.workers.conftest import MakeInbox
from tests.workers.mailing import MOST, Inbox, Mailing, addresses, of_type

HOUR = timedelta(hours=1)
SOONER_THAN_A_SWEEP = 20.0
"""Seconds; an idle worker looks for itself after 30."""


async def pass_to(mailing: Mailing, owner: Connection, at: datetime) -> None:
    """It is so late now, and workers look: a clock that is set tells nobody."""
    await set_clock(owner, at)
    await mailing.conn.execute("SELECT wake()")


class TestStarts:
    async def test_a_worker_sleeps_until_it_is_time(self, mailing: Mailing, inbox: MakeInbox) -> None:
        """By its own timer: nobody says a word."""
        relay = await inbox()
        campaign = await mailing.written(relay.url, addresses(3))
        async with mailing.working():
            now = await mailing.conn.fetchval("SELECT clock()")
            due = now + timedelta(seconds=0.6)
            await scheduling.schedule(mailing.conn, campaign, due)
            await mailing.until(campaign, "completed", SOONER_THAN_A_SWEEP)
        at = await mailing.conn.fetchval("SELECT started_at FROM campaigns WHERE id = $1", campaign)
        assert at >= due
        assert relay.received == dict.fromkeys(addresses(3), 1)

    async def test_the_databases_clock_decides(self, mailing: Mailing, inbox: MakeInbox, owner: Connection) -> None:
        """The machine's own is hours off here; three workers find that it is time, and one starts it, once."""
        await stop_clock(owner)
        relay = await inbox()
        campaign = await mailing.written(relay.url, addresses(30))
        await scheduling.schedule(mailing.conn, campaign, NOON + HOUR)
        async with mailing.working(), mailing.working(), mailing.working():
            for minute in (1, 59):
                await pass_to(mailing, owner, NOON + timedelta(minutes=minute))
            await pass_to(mailing, owner, NOON + HOUR)
            await mailing.until(campaign, "completed")
        started = await mailing.conn.fetchval("SELECT started_at FROM campaigns WHERE id = $1", campaign)
        assert started == NOON + HOUR
        assert (await mailing.types(campaign)).count("Started") == 1
        assert relay.received == dict.fromkeys(addresses(30), 1)
        await mailing.check(campaign)

    async def test_a_missed_one_is_held(self, mailing: Mailing, inbox: MakeInbox, owner: Connection) -> None:
        await stop_clock(owner)
        relay = await inbox()
        campaign = await mailing.written(relay.url, addresses(2))
        await scheduling.schedule(mailing.conn, campaign, NOON + HOUR)
        await set_clock(owner, NOON + 6 * HOUR)
        async with mailing.working():
            await mailing.until(campaign, "paused")
            assert await mailing.paused_for(campaign) == "missed"
            assert not relay.mails
            await mailing.change(campaign, "Resumed")
            await mailing.until(campaign, "completed")
        assert len(relay.mails) == 2

    async def test_one_that_cannot_start_holds_up_no_other(self, mailing: Mailing, owner: Connection) -> None:
        await stop_clock(owner)
        broken, good = [await mailing.written("null://", addresses(2), name=name) for name in ("broken", "good")]
        for campaign in (broken, good):
            await scheduling.schedule(mailing.conn, campaign, NOON + HOUR)
        # What another version left behind: a stream that goes on elsewhere, so that no further event fits.
        await owner.execute("UPDATE campaigns SET version = 1 WHERE id = $1", broken)
        async with mailing.working():
            await pass_to(mailing, owner, NOON + HOUR)
            await mailing.until(good, "completed")
        assert await mailing.status(broken) == "scheduled"

    async def test_resumed_at_its_hour(self, mailing: Mailing, inbox: MakeInbox, owner: Connection) -> None:
        await stop_clock(owner)
        relay = await inbox()
        campaign = await mailing.started(relay.url, addresses(2))
        await scheduling.pause(mailing.conn, campaign, NOON + HOUR)
        async with mailing.working():
            await pass_to(mailing, owner, NOON + HOUR / 2)
            await pass_to(mailing, owner, NOON + HOUR)
            await mailing.until(campaign, "completed")
        (resumed,) = [one for one in await mailing.events(campaign) if one.type == "Resumed"]
        assert resumed.body == {"by": "schedule"}
        at = await mailing.conn.fetchval("SELECT at FROM events WHERE type = 'Resumed'")
        assert at == NOON + HOUR


class Quota:
    """A relay that takes so many mails, and then refuses all until it is `open` again."""

    def __init__(self, count: int, refusal: str) -> None:
        code, _, text = refusal.partition(" ")
        self.refusal = Answer("rcpt", int(code), text)
        self.left = count
        self.is_open = False
        self.refused = 0

    def __call__(self, recipient: str) -> Behaviour:
        del recipient
        if self.is_open or self.left > 0:
            self.left -= 1
            return Accept()
        self.refused += 1
        return self.refusal


class TestQuota:
    HOURS = 24

    @pytest.mark.parametrize(
        "refusal",
        [
            "452 4.3.1 Daily sending quota exceeded",  # says so
            "452 4.3.1 Insufficient system storage",  # says something else
            "452 4.2.2 Over quota",  # says it of the recipients, but of all of them
        ],
    )
    async def test_of_a_day(self, mailing: Mailing, inbox: MakeInbox, owner: Connection, refusal: str) -> None:
        """The campaign pauses, tries once an hour with one mail, and goes on: nobody is dropped, nothing is burned."""
        await stop_clock(owner)
        quota = Quota(23, refusal)
        relay = await inbox(quota)
        campaign = await mailing.started(relay.url, addresses(68), attempts=5)
        async with mailing.working(concurrency=20):
            for hour in range(1, self.HOURS + 1):
                await mailing.until(campaign, "paused")
                assert await mailing.paused_for(campaign) == "provider_quota"
                quota.is_open = hour == self.HOURS
                refused = quota.refused
                await pass_to(mailing, owner, NOON + hour * HOUR)
                await self.until_resumed(mailing, campaign, hour)
                assert quota.refused - refused <= (hour < self.HOURS)
            await mailing.until(campaign, "completed")
        assert await mailing.counts(campaign) == {"sent": 68}
        assert relay.received == dict.fromkeys(addresses(68), 1)
        burned = await mailing.conn.fetchval(
            "SELECT max(attempt) FROM recipient_queue WHERE campaign_id = $1", campaign
        )
        assert burned <= 2
        await mailing.check(campaign)

    async def until_resumed(self, mailing: Mailing, campaign: int, times: int) -> None:
        async def resumed() -> None:
            assert (await mailing.types(campaign)).count("Resumed") == times

        await eventually(resumed, MOST)

    @pytest.mark.parametrize(
        ("refusal", "waits"),
        [
            ("550 5.4.5 Daily user sending limit exceeded", HOUR),
            ("454 4.7.0 Throttling failure: Daily message quota exceeded, try again in 6 hours", 6 * HOUR),
        ],
    )
    async def test_until_the_time_that_is_named(
        self, mailing: Mailing, inbox: MakeInbox, owner: Connection, refusal: str, waits: timedelta
    ) -> None:
        await stop_clock(owner)
        relay = await inbox(Quota(0, refusal))
        campaign = await mailing.started(relay.url, addresses(3))
        async with mailing.working():
            await mailing.until(campaign, "paused")
        (paused,) = of_type(await mailing.events(campaign), "Paused")
        assert paused == {"reason": "provider_quota", "resume_at": write_moment(NOON + waits)}
        await mailing.until_counts(campaign, pending=3)
        assert await mailing.conn.fetchval("SELECT max(attempt) FROM recipient_queue") == 0

    async def test_a_few_full_mailboxes_are_none(self, mailing: Mailing, inbox: MakeInbox) -> None:
        full = set(addresses(9))
        relay = await inbox(lambda to: Answer("rcpt", 452, "4.2.2 Mailbox full") if to in full else Accept())
        campaign = await mailing.started(relay.url, addresses(200))
        async with mailing.working(concurrency=10):
            await mailing.until_counts(campaign, sent=191, pending=9)
        assert await mailing.status(campaign) == "sending"


class TestWhileSomebodyAddsPeople:
    """An import of a million holds the campaign's lock for a minute; pauses want it for themselves."""

    @asynccontextmanager
    async def adding(self, mailing: Mailing, campaign: int) -> AsyncIterator[None]:
        async with mailing.database.connection() as conn, conn.transaction():
            await conn.execute("SELECT pg_advisory_xact_lock_shared(lock_key('campaign', $1))", campaign)
            yield

    async def test_outcomes_are_recorded_and_the_pause_comes_afterwards(
        self, mailing: Mailing, inbox: MakeInbox
    ) -> None:
        relay = await inbox(Quota(5, "452 4.3.1 Daily sending quota exceeded"))
        campaign = await mailing.started(relay.url, addresses(20))
        async with mailing.working(concurrency=10):
            async with self.adding(mailing, campaign):
                await mailing.until_counts(campaign, sent=5, pending=15)
                assert await mailing.status(campaign) == "sending"
            await mailing.until(campaign, "paused")
        assert await mailing.paused_for(campaign) == "provider_quota"
        await mailing.check(campaign)

    async def test_a_worker_that_is_stopped_does_not_wait_for_the_pause(
        self, mailing: Mailing, inbox: MakeInbox
    ) -> None:
        relay = await inbox(Quota(0, "452 4.3.1 Daily sending quota exceeded"))
        campaign = await mailing.started(relay.url, addresses(20))
        async with self.adding(mailing, campaign):
            async with mailing.working(concurrency=10, grace=1.0):
                await mailing.until_happened(campaign, "Released", 1)
            assert await mailing.status(campaign) == "sending"
            await mailing.check(campaign)  # nothing is left in its hands
        assert await mailing.counts(campaign) == {"pending": 20}


class TestErrorRate:
    @staticmethod
    def refuses(recipient: str) -> Behaviour:
        del recipient
        return Answer("rcpt", 550, "5.1.1 No such user here")

    async def test_too_many_failures_pause_it(self, mailing: Mailing, inbox: MakeInbox) -> None:
        relay = await inbox(self.refuses)
        campaign = await mailing.started(relay.url, addresses(400), max_errors=20)
        async with mailing.working(concurrency=10):
            await mailing.until(campaign, "paused")
        assert await mailing.paused_for(campaign) == "error_rate"
        counts = await mailing.counts(campaign)
        assert 21 <= counts["failed"] < 100  # at the 21st, and what was under way then
        assert counts["failed"] + counts["pending"] == 400
        await mailing.check(campaign)

    async def test_off(self, mailing: Mailing, inbox: MakeInbox) -> None:
        relay = await inbox(self.refuses)
        campaign = await mailing.started(relay.url, addresses(150), max_errors=100)
        async with mailing.working(concurrency=10):
            await mailing.until(campaign, "completed")
        assert await mailing.counts(campaign) == {"failed": 150}

    async def test_letters_that_cannot_be_made_are_failures_too(self, mailing: Mailing) -> None:
        people = [f"p{n}@example.net" for n in range(150)]
        campaign = await mailing.written("null://?render=1", people, max_errors=50)
        await mailing.conn.execute("UPDATE recipients SET data = '{}' WHERE campaign_id = $1", campaign)
        await mailing.change(campaign, "Started")
        async with mailing.working(concurrency=10):
            await mailing.until(campaign, "paused")
        assert await mailing.paused_for(campaign) == "error_rate"


@pytest.fixture
async def deaf() -> AsyncIterator[str]:
    """The URL of a relay that takes connections and never says a word."""
    sessions: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: sessions.append(writer), "127.0.0.1", 0)
    yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    for writer in sessions:
        writer.close()
    await server.wait_closed()


async def test_senders_do_not_delay_each_other(mailing: Mailing, inbox: MakeInbox, deaf: str) -> None:
    relay = await inbox()
    stuck = await mailing.started(deaf, addresses(100), priority=5)
    good = await mailing.started(relay.url, addresses(100))
    async with mailing.working(concurrency=5, grace=0.5):
        await mailing.until(good, "completed")
    assert await mailing.counts(stuck) == {"pending": 100}


async def test_a_locked_campaign_delays_no_other(mailing: Mailing, inbox: MakeInbox, owner: Connection) -> None:
    """One sender, one worker, and somebody who forgot to commit: its outcomes wait, with its share of the slots."""
    relay = await inbox()
    locked, good = [await mailing.started(relay.url, addresses(count)) for count in (500, 300)]
    async with mailing.working(concurrency=10):
        await mailing.until_counted(locked, "sent", 10)
        async with owner.transaction():
            await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", locked)
            await mailing.until(good, "completed")
            assert (await mailing.counts(locked)).get("sent", 0) < 500
        await mailing.until(locked, "completed")
    assert await mailing.counts(locked) == {"sent": 500}
    for campaign in (locked, good):
        await mailing.check(campaign)


async def test_an_outage_is_waited_for_and_costs_nobody_a_try(mailing: Mailing) -> None:
    """What was claimed goes back untouched; when the relay is there again one mail goes first, then all."""
    relay = await Inbox().start()
    campaign = await mailing.started(relay.url, addresses(600))
    async with mailing.working(concurrency=4) as worker:
        await eventually(lambda: _some(worker), MOST)
        await relay.stop()

        async def noticed() -> None:
            reasons = [body["reason"] for body in await bodies(mailing, campaign, "Released")]
            assert "relay_down" in reasons

        await eventually(noticed, MOST)
        assert await mailing.status(campaign) == "sending"
        again = await Inbox().start(port=relay.port)
        await mailing.until(campaign, "completed")
    await again.stop()
    assert await mailing.counts(campaign) == {"sent": 600}
    await mailing.check_copies(campaign, relay.received + again.received)
    happened = await mailing.happened(campaign)
    in_hand = happened["OutcomeUnknown"] + happened["Deferred"]  # cut off after the final dot, or before it
    assert in_hand <= 4
    assert await mailing.conn.fetchval("SELECT max(attempt) FROM recipient_queue") <= 1 + (in_hand > 0)
    assert (await claims_after_the_outage(mailing, campaign))[0] == 1


async def bodies(mailing: Mailing, campaign: int, kind: str) -> list[dict[str, str]]:
    rows = await mailing.conn.fetch("SELECT body FROM events WHERE campaign_id = $1 AND type = $2", campaign, kind)
    return [row["body"] for row in rows]


async def claims_after_the_outage(mailing: Mailing, campaign: int) -> list[int]:
    """The sizes of the claims, in order, since the last mail that came back for the relay's sake."""
    query = """
        SELECT count(*) FROM events
        WHERE campaign_id = $1 AND type = 'Claimed' AND position > (
            SELECT max(position) FROM events
            WHERE campaign_id = $1 AND type = 'Released' AND body ->> 'reason' = 'relay_down')
        GROUP BY body ->> 'claim_id' ORDER BY min(position)"""
    return [row["count"] for row in await mailing.conn.fetch(query, campaign)]


def _some(worker: Worker) -> None:
    assert worker.outcomes["Sent"] >= 10
