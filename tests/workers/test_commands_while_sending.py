"""Pause, resume, cancel, suppress, retry and stop, given while mail leaves."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from postledger.demo.behaviours import Answer, Slow
from postledger.ledger import campaigns as ledger
from tests import campaigns as calls
from tests.eventually import eventually
from tests.workers.conftest import MakeInbox
from tests.workers.mailing import Inbox, Mailing, addresses

SLOW = Slow(timedelta(milliseconds=15))


async def until_accepted(relay: Inbox, count: int) -> None:
    def accepted() -> None:
        assert relay.accepted >= count

    await eventually(accepted, 30)


async def until_nothing_is_held(mailing: Mailing) -> None:
    async def free() -> None:
        assert await mailing.claims() == 0

    await eventually(free, 30)


async def test_pause_and_resume_again_and_again(mailing: Mailing, inbox: MakeInbox) -> None:
    """Nothing leaves while it is paused, nobody is mailed twice, no attempt is burned."""
    relay = await inbox(lambda _: SLOW)
    campaign = await mailing.started(relay.url, addresses(120))

    async with mailing.working(concurrency=6):
        for paused_at in (10, 35, 60):
            await until_accepted(relay, paused_at)
            await mailing.change(campaign, "Paused")
            await until_nothing_is_held(mailing)
            before = relay.accepted
            await mailing.conn.execute("SELECT wake()")
            await asyncio.sleep(0.1)
            assert relay.accepted == before
            assert before < 120
            await mailing.change(campaign, "Resumed")
        await mailing.until(campaign, "completed")

    assert relay.received == dict.fromkeys(addresses(120), 1)
    assert set((await mailing.happened(campaign)).keys()) <= {"Queued", "Claimed", "Released", "Sent"}
    query = "SELECT DISTINCT body ->> 'reason' FROM events WHERE type = 'Released'"
    assert [row[0] for row in await mailing.conn.fetch(query)] in ([], ["paused"])
    await mailing.check(campaign)


async def test_pause_and_resume_at_once(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox()
    campaign = await mailing.started(relay.url, addresses(100))

    async with mailing.working(concurrency=5):
        for _ in range(20):
            await mailing.change(campaign, "Paused")
            await mailing.change(campaign, "Resumed")
        await mailing.until(campaign, "completed")

    assert relay.received == dict.fromkeys(addresses(100), 1)
    await mailing.check(campaign)


async def test_cancel_stops_within_what_is_under_way(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(lambda _: SLOW)
    campaign = await mailing.started(relay.url, addresses(200))

    async with mailing.working(concurrency=5):
        await until_accepted(relay, 20)
        await mailing.change(campaign, "Cancelled")
        await until_nothing_is_held(mailing)
        accepted = relay.accepted

        async def swept() -> None:
            assert await mailing.counts(campaign) == {"sent": accepted, "cancelled": 200 - accepted}

        await eventually(swept, 30)

    assert relay.accepted == accepted < 200
    await mailing.check_copies(campaign, relay.received)
    await mailing.check(campaign)


async def test_cancel_of_a_paused_one_needs_no_relay(mailing: Mailing) -> None:
    relay = await Inbox().start()
    await relay.stop()
    campaign = await mailing.started(relay.url, addresses(30))
    await mailing.change(campaign, "Paused")

    async with mailing.working():
        await mailing.change(campaign, "Cancelled")
        await mailing.until_counts(campaign, cancelled=30)
    await mailing.check(campaign)


async def test_whoever_is_suppressed_in_time_gets_nothing(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(lambda _: SLOW)
    people = addresses(150)
    campaign = await mailing.started(relay.url, people)

    async with mailing.working(concurrency=5):
        await until_accepted(relay, 20)
        for address in people[75:]:
            await mailing.conn.execute("SELECT suppress($1, 'complaint', 'test')", address)
        await mailing.until(campaign, "completed")

    counts = await mailing.counts(campaign)
    assert counts["skipped"] > 0
    assert counts["skipped"] + counts["sent"] == 150
    assert relay.accepted == counts["sent"]
    query = """SELECT r.email FROM recipient_queue q JOIN recipients r USING (campaign_id, delivery_id)
               WHERE q.status = 'skipped'"""
    skipped = {row[0] for row in await mailing.conn.fetch(query)}
    assert not skipped & set(relay.received)
    await mailing.check(campaign)


async def test_the_dead_letters_are_sent_round_again(mailing: Mailing, inbox: MakeInbox) -> None:
    """But never those whom the relay has proven dead."""
    relay = await inbox(
        lambda recipient: (
            Answer("rcpt", 550, "5.1.1 No such user here")
            if "gone" in recipient
            else Answer("rcpt", 550, "5.2.2 Mailbox full", times=1)
        )
    )
    campaign = await mailing.started(relay.url, [*addresses(4), *addresses(2, "gone")])

    async with mailing.working():
        await mailing.until(campaign, "completed")
        assert await mailing.counts(campaign) == {"failed": 6}
        assert await mailing.conn.fetchval(ledger.sql.requeue, campaign, None, "retry", "operator") == 4
        await mailing.until(campaign, "completed")

    assert await mailing.counts(campaign) == {"failed": 2, "sent": 4}
    types = await mailing.types(campaign, addresses(1)[0])
    assert types == ["Queued", "Claimed", "Failed", "Requeued", "Claimed", "Sent"]
    assert (await mailing.types(campaign))[-2:] == ["Reopened", "Completed"]
    await mailing.check(campaign)


async def test_people_added_while_it_sends(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(lambda _: SLOW)
    campaign = await mailing.started(relay.url, addresses(30))
    async with mailing.working(concurrency=5):
        await until_accepted(relay, 5)
        await calls.enqueue(mailing.conn, campaign, [(address, address) for address in addresses(60)])
        await mailing.until(campaign, "completed")
    assert relay.received == dict.fromkeys(addresses(60), 1)


class TestStop:
    async def test_what_has_begun_is_finished_and_the_rest_given_back(self, mailing: Mailing, inbox: MakeInbox) -> None:
        relay = await inbox(lambda _: Slow(timedelta(seconds=0.4)))
        campaign = await mailing.started(relay.url, addresses(30))
        async with mailing.working(concurrency=5):
            await eventually(lambda: _equal(relay.accepted, 5))
        counts = await mailing.counts(campaign)

        assert counts == {"sent": 5, "pending": 25}
        assert await mailing.claims() == 0
        query = "SELECT max(attempt) FROM recipient_queue WHERE status = 'pending'"
        assert await mailing.conn.fetchval(query) == 0
        assert (await mailing.happened(campaign))["OutcomeUnknown"] == 0

        relay.behaviour = lambda _: SLOW
        async with mailing.working():
            await mailing.until(campaign, "completed")
        assert relay.received == dict.fromkeys(addresses(30), 1)
        await mailing.check(campaign)

    async def test_what_has_not_begun_is_given_back_at_once(self, mailing: Mailing, inbox: MakeInbox) -> None:
        """It has claimed, and waits for a session with the relay: one at a time is all that it allows."""
        relay = await inbox(lambda _: Slow(timedelta(seconds=0.4)))
        campaign = await mailing.started(relay.url, addresses(20))
        async with mailing.working(concurrency=10, grace=20) as worker:
            worker.permits.block(True)
            await mailing.until_counts(campaign, sending=10, pending=10)
        assert await mailing.counts(campaign) == {"pending": 20}
        happened = await mailing.happened(campaign)
        assert (happened["Released"], happened["OutcomeUnknown"]) == (10, 0)
        assert relay.accepted == 0

    async def test_a_relay_that_owes_its_answer_is_not_waited_for_beyond_the_grace(
        self, mailing: Mailing, inbox: MakeInbox
    ) -> None:
        """The dot is written, so the outcome is unknown, and recorded as that before the end."""
        relay = await inbox(lambda _: Slow(timedelta(hours=1)))
        campaign = await mailing.started(relay.url, addresses(12))
        async with mailing.working(concurrency=4, grace=4.0):
            await eventually(lambda: _equal(relay.accepted, 4))

        assert await mailing.happened(campaign) == {"Queued": 12, "Claimed": 4, "OutcomeUnknown": 4, "Requeued": 4}
        assert await mailing.counts(campaign) == {"pending": 12}
        await mailing.check(campaign)

    async def test_it_ends_though_nothing_can_be_recorded(self, mailing: Mailing, inbox: MakeInbox) -> None:
        """What was sent is found by others, and has an unknown outcome then."""
        relay = await inbox(lambda _: Slow(timedelta(seconds=0.2), times=1))
        campaign = await mailing.started(relay.url, addresses(8))
        async with asyncio.timeout(30), mailing.database.connection(role=None) as other, other.transaction():
            async with mailing.working(concurrency=4, grace=1.0):
                await eventually(lambda: _equal(relay.accepted, 4))
                await other.execute("LOCK TABLE events IN SHARE ROW EXCLUSIVE MODE")
            # The statement outlives the one who sent it: with the lock gone it would go through.
            await other.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        assert await mailing.counts(campaign) == {"pending": 4, "sending": 4}

        async with mailing.working():
            await mailing.until_happened(campaign, "OutcomeUnknown", 4)
            await mailing.until(campaign, "completed")
        assert relay.received == dict.fromkeys(addresses(4), 2) | dict.fromkeys(addresses(8)[4:], 1)
        await mailing.check_copies(campaign, relay.received)
        await mailing.check(campaign)

    async def test_a_claim_whose_answer_never_came_is_given_back(self, mailing: Mailing) -> None:
        """Nothing of it was sent, and nobody but this worker can know that: from outside it would be unknown."""
        campaign = await mailing.started("null://", addresses(10))
        await mailing.change(campaign, "Paused")
        async with mailing.working(grace=1.0) as worker:
            await mailing.change(campaign, "Resumed")
            await calls.claim(mailing.conn, campaign, worker.session.worker, 5)
            worker.stop()
        assert await mailing.claims() == 0
        assert (await mailing.happened(campaign))["OutcomeUnknown"] == 0


@pytest.mark.parametrize("url", ["null://", "null://?render=1"])
async def test_batches_are_paused_and_cancelled_like_single_mails(mailing: Mailing, url: str) -> None:
    campaign = await mailing.started(url, addresses(3000))
    async with mailing.working(concurrency=50) as worker:
        await eventually(lambda: _some(worker.outcomes), 30)
        await mailing.change(campaign, "Paused")
        await until_nothing_is_held(mailing)
        counts = await mailing.counts(campaign)
        assert set(counts) <= {"pending", "sent"}
        await mailing.change(campaign, "Resumed")
        await mailing.until(campaign, "completed")
    assert await mailing.counts(campaign) == {"sent": 3000}
    await mailing.check(campaign)


def _equal(found: object, expected: object) -> None:
    assert found == expected


def _some(outcomes: Counter[str]) -> None:
    assert outcomes["Sent"]
