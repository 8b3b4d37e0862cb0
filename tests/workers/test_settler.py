"""Outcomes are recorded whatever happens to the connection, the statement or the caller."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import pytest

from postledger.database import Connection
from postledger.ledger.queue import Delivery, Outcome
from postledger.workers.link import Link
from postledger.workers.settler import Settler
from tests import campaigns
from tests.campaigns import released, sent, skipped
from tests.eventually import eventually
from tests.workers.mailing import Mailing, addresses

LABEL = "settles of the test"


class Desk:
    """A settler at work, what it has said, and claimed rows to settle."""

    def __init__(self, mailing: Mailing, owner: Connection, patience: timedelta) -> None:
        self.mailing = mailing
        self.owner = owner
        self.settled: list[Outcome] = []
        self.troubles: list[bool] = []
        self.link = Link(mailing.database, LABEL)
        self.settler = Settler(
            self.link, on_settled=self.settled.extend, on_trouble=self.trouble, slow=0.05, patience=patience
        )

    def trouble(self, trouble: bool) -> None:
        if (self.troubles or [False])[-1] != trouble:
            self.troubles.append(trouble)

    async def claimed(self, count: int) -> Sequence[Delivery]:
        self.campaign = await self.mailing.started("null://", addresses(count))
        worker = await campaigns.enlist(self.mailing.conn)
        return (await campaigns.claim(self.mailing.conn, self.campaign, worker, count)).rows

    async def counts(self) -> dict[str, int]:
        return await self.mailing.counts(self.campaign)

    async def backends(self, where: str) -> int:
        query = f"SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND {where}"
        return await self.owner.fetchval(query, f"postledger {LABEL}")

    async def until_it_waits(self) -> None:
        """For a lock that somebody else has."""

        async def waits() -> None:
            assert await self.backends("wait_event_type = 'Lock'") == 1

        await eventually(waits)

    async def kill(self) -> None:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1"
        await self.owner.fetch(query, f"postledger {LABEL}")

    @asynccontextmanager
    async def locked(self, row: Delivery) -> AsyncIterator[None]:
        """Somebody else holds the row for as long as this lasts."""
        async with self.mailing.database.connection() as other, other.transaction():
            query = "SELECT FROM recipient_queue WHERE campaign_id = $1 AND delivery_id = $2 FOR UPDATE"
            await other.execute(query, row.campaign_id, row.delivery_id)
            yield


@pytest.fixture
async def desk(mailing: Mailing, owner: Connection) -> AsyncIterator[Desk]:
    async with at_work(Desk(mailing, owner, timedelta(minutes=1))) as desk:
        yield desk


@asynccontextmanager
async def at_work(desk: Desk) -> AsyncIterator[Desk]:
    async def work() -> None:
        while True:
            await desk.settler.step()

    working = asyncio.create_task(work())
    yield desk
    working.cancel()
    with suppress(asyncio.CancelledError):
        await working
    await desk.link.close()


async def test_an_outcome_is_committed_when_record_returns(desk: Desk) -> None:
    (row,) = await desk.claimed(1)
    await desk.settler.record([sent(row)])

    assert await desk.counts() == {"sent": 1}
    assert desk.settled == [sent(row)]
    assert desk.settler.pending == 0
    await desk.mailing.check(desk.campaign)


async def test_what_arrives_during_a_flush_goes_into_the_next(desk: Desk) -> None:
    first, *others = await desk.claimed(20)
    async with desk.locked(first):
        recording = [asyncio.create_task(desk.settler.record([sent(first)]))]
        await desk.until_it_waits()
        recording += [asyncio.create_task(desk.settler.record([sent(row)])) for row in others]
        await asyncio.sleep(0)
        assert await desk.backends("true") == 1  # one flush under way, on one connection
        assert desk.settler.pending == 20
    await asyncio.gather(*recording)

    query = "SELECT xid::text, count(*) FROM events WHERE type = 'Sent' GROUP BY xid"
    assert Counter(dict(await desk.owner.fetch(query)).values()) == {1: 1, 19: 1}


async def test_two_campaigns_are_settled_apart(desk: Desk) -> None:
    (one,) = await desk.claimed(1)
    (two,) = await desk.claimed(1)
    await desk.settler.record([sent(two), released(one)])

    assert await desk.mailing.counts(one.campaign_id) == {"pending": 1}
    assert await desk.mailing.counts(two.campaign_id) == {"sent": 1}


async def test_a_campaign_that_is_locked_keeps_no_other_waiting(mailing: Mailing, owner: Connection) -> None:
    """An operator pauses it while somebody adds a million people to it: its outcomes wait, and nobody else's."""
    async with at_work(Desk(mailing, owner, timedelta(milliseconds=50))) as desk:
        locked, others = await desk.claimed(30), await desk.claimed(30)
        async with owner.transaction():
            await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", locked[0].campaign_id)
            waiting = [asyncio.create_task(desk.settler.record([sent(row)])) for row in locked]
            await asyncio.gather(*(desk.settler.record([sent(row)]) for row in others))
            for row in await desk.claimed(5):  # again and again
                await desk.settler.record([sent(row)])
            assert desk.settler.pending == 30
            assert not any(one.done() for one in waiting)
        await asyncio.gather(*waiting)
    assert Counter(o.delivery.campaign_id for o in desk.settled) == {
        locked[0].campaign_id: 30,
        others[0].campaign_id: 30,
        desk.campaign: 5,
    }
    for campaign in {o.delivery.campaign_id for o in desk.settled}:
        await mailing.check(campaign)


async def test_a_connection_that_is_lost_in_the_middle_loses_nothing(desk: Desk) -> None:
    first, *others = await desk.claimed(3)
    async with desk.locked(first):
        recording = asyncio.create_task(desk.settler.record([sent(row) for row in (first, *others)]))
        for _ in range(3):
            await desk.until_it_waits()
            await desk.kill()
        assert not recording.done()
    await recording

    assert await desk.counts() == {"sent": 3}
    assert desk.troubles == [True, False]
    await desk.mailing.check(desk.campaign)


async def test_the_answer_may_be_lost_after_the_commit(desk: Desk) -> None:
    """The repeat is known for one, and changes nothing."""
    rows = await desk.claimed(3)
    await campaigns.settle(desk.mailing.conn, desk.campaign, [sent(row) for row in rows])
    await desk.settler.record([sent(row) for row in rows])

    assert (await desk.mailing.happened(desk.campaign))["Sent"] == 3
    assert len(desk.settled) == 3


async def test_a_flush_that_hangs_is_trouble_before_it_fails(desk: Desk) -> None:
    (row,) = await desk.claimed(1)
    async with desk.locked(row):
        recording = asyncio.create_task(desk.settler.record([sent(row)]))
        await eventually(lambda: _equal(desk.troubles, [True]))
        assert not recording.done()
    await recording
    assert desk.troubles == [True, False]


async def test_a_statement_that_is_refused_for_all_is_repeated_until_it_is_not(desk: Desk) -> None:
    """Whatever stands in the way, an outcome keeps its meaning: a sent mail never becomes an unknown one for it."""
    rows = await desk.claimed(5)
    await desk.owner.execute("""
        CREATE FUNCTION stand_in_the_way() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
        CREATE TRIGGER stand_in_the_way BEFORE INSERT ON events_1 FOR EACH ROW EXECUTE FUNCTION stand_in_the_way()""")
    recording = asyncio.create_task(desk.settler.record([sent(row) for row in rows]))
    await eventually(lambda: _equal(desk.troubles, [True]))
    assert await desk.counts() == {"sending": 5}
    await desk.owner.execute("DROP TRIGGER stand_in_the_way ON events_1")
    await recording

    assert await desk.counts() == {"sent": 5}
    assert desk.troubles == [True, False]
    await desk.mailing.check(desk.campaign)


def bad_body(row: Delivery) -> Outcome:
    """Nothing that JSON could hold."""
    return Outcome(row, "Sent", {"attempt": 1, "provider": object()})


def bad_type(row: Delivery) -> Outcome:
    return Outcome(row, "Resumed", {})


def bad_reply(row: Delivery) -> Outcome:
    return Outcome(row, "Failed", {"attempt": 1, "class": "render", "code": "x"}, reply="x" * 5000)


def bad_attempt(row: Delivery) -> Outcome:
    return Outcome(row, "Sent", {"attempt": -1, "provider": "null"})


@pytest.mark.parametrize("bad", [bad_body, bad_type, bad_reply, bad_attempt])
async def test_one_that_cannot_be_recorded_is_unknown_and_holds_up_no_other(desk: Desk, bad) -> None:
    """Left alone it would be released as if it had never been sent, and mailed again without a trace."""
    rows = await desk.claimed(20)
    await asyncio.gather(desk.settler.record([sent(row) for row in rows[:13]]), desk.settler.record([bad(rows[13])]))
    await desk.settler.record([sent(row) for row in rows[14:]])

    assert await desk.counts() == {"sent": 19, "pending": 1}
    events = await desk.mailing.events(desk.campaign, rows[13].email)
    assert [event.type for event in events] == ["Queued", "Claimed", "OutcomeUnknown", "Requeued"]
    assert events[2].body == {"attempt": 1, "reason": "not_recorded"}
    assert len(desk.settled) == 20
    assert desk.troubles in ([], [True, False])


async def test_a_row_that_is_gone_holds_up_nothing(desk: Desk) -> None:
    gone, left = await desk.claimed(2)
    await desk.owner.execute("DELETE FROM recipient_queue WHERE delivery_id = $1", gone.delivery_id)
    await desk.settler.record([sent(gone), sent(left)])

    assert await desk.counts() == {"sent": 1}
    assert desk.settled == [sent(left)]


async def test_a_caller_that_is_cancelled_does_not_take_the_outcome_along(desk: Desk) -> None:
    (row,) = await desk.claimed(1)
    async with desk.locked(row):
        recording = asyncio.create_task(desk.settler.record([sent(row)]))
        await desk.until_it_waits()
        recording.cancel()
        with pytest.raises(asyncio.CancelledError):
            await recording
        assert desk.settler.pending == 1

    async def recorded() -> None:
        assert await desk.counts() == {"sent": 1}

    await eventually(recorded)


async def test_a_flush_that_is_broken_off_has_lost_nothing(desk: Desk) -> None:
    (row,) = await desk.claimed(1)
    other = Settler(desk.link, on_settled=desk.settled.extend, on_trouble=desk.trouble)
    recording = asyncio.create_task(other.record([skipped(row)]))
    async with desk.locked(row):
        flush = asyncio.create_task(other.step())
        await desk.until_it_waits()
        flush.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flush
        assert other.pending == 1
    await other.step()
    await recording
    assert await desk.counts() == {"skipped": 1}


def _equal(found: object, expected: object) -> None:
    assert found == expected
