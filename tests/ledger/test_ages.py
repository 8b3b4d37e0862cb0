"""How long a delivery has been tried: what `--give-up` counts, and what it does not."""

from datetime import datetime, timedelta

import pytest

from postledger.database import Connection
from tests import campaigns as calls
from tests.clock import NOON, set_clock, stop_clock
from tests.workers.mailing import Mailing, addresses

HOUR = timedelta(hours=1)


class Story:
    """One campaign, one worker, and a clock that goes on by the hour."""

    def __init__(self, mailing: Mailing, owner: Connection, campaign: int, worker: int) -> None:
        self.mailing = mailing
        self.owner = owner
        self.campaign = campaign
        self.worker = worker

    async def at(self, hour: float) -> datetime:
        now = NOON + hour * HOUR
        await set_clock(self.owner, now)
        return now

    async def tried(self, count: int = 1, outcome=calls.deferred) -> list[timedelta | None]:
        """Claims so many and lets them fail for now; their ages."""
        rows = (await calls.claim(self.mailing.conn, self.campaign, self.worker, count)).rows
        assert len(rows) == count
        await calls.settle(self.mailing.conn, self.campaign, [outcome(row) for row in rows])
        return [row.age for row in rows]


@pytest.fixture
async def story(mailing: Mailing, owner: Connection) -> Story:
    await stop_clock(owner)
    campaign = await mailing.started("null://", addresses(1))
    return Story(mailing, owner, campaign, await calls.enlist(mailing.conn))


async def test_from_the_first_try(story: Story) -> None:
    assert await story.tried() == [None]
    await story.at(5)
    assert await story.tried() == [5 * HOUR]
    await story.at(7)
    assert await story.tried(outcome=calls.released) == [7 * HOUR]
    await story.at(8)
    assert await story.tried() == [8 * HOUR]


async def test_without_the_pauses(story: Story) -> None:
    """A quota of a day is nobody's fault, and would end whoever it delays."""
    await story.mailing.change(story.campaign, "Paused")  # before the first try: nothing to leave out
    await story.at(1)
    await story.mailing.change(story.campaign, "Resumed")
    await story.tried()
    for begin in range(2, 26):
        await story.at(begin)
        await story.mailing.change(story.campaign, "Paused", {"reason": "provider_quota"})
        await story.at(begin + 0.75)
        await story.mailing.change(story.campaign, "Resumed")
    await story.at(26)
    assert await story.tried() == [25 * HOUR - 24 * 0.75 * HOUR]
    await story.mailing.check(story.campaign)


async def test_a_pause_counts_for_those_who_were_tried_before_it(story: Story) -> None:
    await calls.enqueue(story.mailing.conn, story.campaign, [("late", "late@example.net")])
    await story.tried(1)
    await story.at(1)
    await story.mailing.change(story.campaign, "Paused")
    await story.at(3)
    await story.mailing.change(story.campaign, "Resumed")
    await story.tried(2)
    await story.at(4)
    assert sorted(age for age in await story.tried(2) if age) == [HOUR, 2 * HOUR]


async def test_an_operator_sends_it_round_again_as_new(story: Story) -> None:
    """Or whoever had failed by age would fail again at the first reply that says later."""
    await story.tried()
    await story.at(30)
    await story.tried(outcome=calls.failed)
    await story.at(31)
    assert await story.mailing.conn.fetchval("SELECT requeue($1, NULL, 'retry', 'operator')", story.campaign) == 1
    assert await story.tried() == [None]
    await story.at(32)
    assert await story.tried() == [HOUR]


async def test_the_policy_does_not_make_it_new(story: Story) -> None:
    await story.tried(outcome=calls.unknown)
    await story.at(3)
    assert await story.tried() == [3 * HOUR]


class TestExpires:
    async def claimed(self, story: Story, campaign: int) -> tuple[int, int]:
        claim = await calls.claim(story.mailing.conn, campaign, story.worker, 10)
        await calls.settle(story.mailing.conn, campaign, [calls.sent(row) for row in claim.rows])
        return len(claim.rows), claim.skipped

    @pytest.mark.parametrize(("hour", "found"), [(1, (3, 0)), (1.01, (0, 3))])
    async def test_so_long_after_the_start(self, story: Story, hour: float, found: tuple[int, int]) -> None:
        campaign = await story.mailing.written("null://", addresses(3), expires=HOUR)
        await story.at(-5)
        await story.mailing.change(campaign, "Scheduled", {"due_at": "2026-11-30T12:00:00.000000Z"})
        await story.at(0)
        await story.mailing.conn.fetchval("SELECT wake_campaign($1)", campaign)
        await story.at(hour)
        assert await self.claimed(story, campaign) == found
        if found[1]:
            (*_, skipped) = await story.mailing.events(campaign, addresses(1)[0])
            assert (skipped.type, skipped.body) == ("Skipped", {"reason": "expired"})
        await story.mailing.check(campaign)

    async def test_in_a_standing_campaign_each_from_its_own_moment(self, story: Story) -> None:
        conn = story.mailing.conn
        campaign = await story.mailing.started("null://", [], name="receipts", kind="standing", expires=HOUR)
        for key, due in (("now", 0), ("later", 3)):
            query = "SELECT enqueue('receipts', $1 || '@example.net', $1, due_at => $2)"
            await conn.fetchval(query, key, NOON + due * HOUR)
        await story.at(2)
        assert await self.claimed(story, campaign) == (0, 1)
        await story.at(4)
        assert await self.claimed(story, campaign) == (1, 0)
        await story.mailing.check(campaign)
