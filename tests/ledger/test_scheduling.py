"""When a campaign begins and until when it rests, by the database's clock and no other."""

from datetime import timedelta

import pytest

from postledger.database import Connection, Database
from postledger.errors import ConflictError, DataError
from postledger.events.text import write_moment
from postledger.ledger import campaigns, scheduling
from postledger.projections.verify import verify
from tests import campaigns as calls
from tests.clock import NOON, set_clock, stop_clock
from tests.workers.mailing import Mailing, addresses

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
LATE = NOON + HOUR


@pytest.fixture
async def draft(mailing: Mailing, owner: Connection) -> int:
    """A draft to two people; it is noon."""
    await stop_clock(owner)
    return await mailing.written("null://", addresses(2))


async def wake(conn: Connection, campaign: int) -> str | None:
    return await conn.fetchval("SELECT wake_campaign($1)", campaign)


class TestSchedule:
    async def test_it_starts_then_and_not_before(self, mailing: Mailing, owner: Connection, draft: int) -> None:
        assert await scheduling.schedule(mailing.conn, draft, LATE)
        assert await mailing.status(draft) == "scheduled"
        assert not await scheduling.schedule(mailing.conn, draft, LATE)
        for minutes in (0, 30, 59):
            await set_clock(owner, NOON + minutes * MINUTE)
            assert await wake(mailing.conn, draft) is None
        await set_clock(owner, LATE)
        assert await wake(mailing.conn, draft) == "Started"
        assert await wake(mailing.conn, draft) is None  # once, whoever else sees that it is time
        events = await mailing.events(draft)
        assert [event.type for event in events[2:]] == ["Scheduled", "Started"]
        assert [event.body for event in events[2:]] == [{"due_at": write_moment(LATE)}, {"by": "schedule"}]
        await mailing.check(draft)

    async def test_another_time_and_no_time(self, mailing: Mailing, draft: int) -> None:
        await scheduling.schedule(mailing.conn, draft, LATE)
        assert await scheduling.schedule(mailing.conn, draft, LATE + HOUR)
        assert (await campaigns.read(mailing.conn, draft)).starts_at == LATE + HOUR
        assert await scheduling.schedule(mailing.conn, draft, None)
        assert not await scheduling.schedule(mailing.conn, draft, None)
        campaign = await campaigns.read(mailing.conn, draft)
        assert (campaign.status, campaign.starts_at) == ("draft", None)
        types = ["Scheduled", "Unscheduled", "Scheduled", "Unscheduled"]
        assert (await mailing.types(draft))[2:] == types
        await mailing.check(draft)

    async def test_the_past_is_refused_and_changes_nothing(self, mailing: Mailing, draft: int) -> None:
        await scheduling.schedule(mailing.conn, draft, LATE)
        for at in (NOON, NOON - HOUR):
            with pytest.raises(DataError, match="past, the database's clock says 2026-11-30T12:00:00Z"):
                await scheduling.schedule(mailing.conn, draft, at)
        assert (await campaigns.read(mailing.conn, draft)).starts_at == LATE

    @pytest.mark.parametrize("event", ["Started", "Cancelled"])
    async def test_only_what_has_not_begun(self, mailing: Mailing, draft: int, event: str) -> None:
        await mailing.change(draft, event)
        with pytest.raises(ConflictError, match="only what has not begun"):
            await scheduling.schedule(mailing.conn, draft, LATE)

    async def test_nobody_to_write_to(self, mailing: Mailing, draft: int) -> None:
        empty = await mailing.written("null://", [], name="empty")
        for refused in (scheduling.schedule(mailing.conn, empty, LATE), scheduling.start(mailing.conn, empty)):
            with pytest.raises(DataError, match="nobody to write to"):
                await refused
        standing = await mailing.written("null://", [], name="receipts", kind="standing")
        assert await scheduling.start(mailing.conn, standing)
        assert draft

    async def test_started_by_hand_before_its_hour(self, mailing: Mailing, owner: Connection, draft: int) -> None:
        await scheduling.schedule(mailing.conn, draft, LATE)
        assert await scheduling.start(mailing.conn, draft)
        assert not await scheduling.start(mailing.conn, draft)
        campaign = await campaigns.read(mailing.conn, draft)
        assert (campaign.started_at, campaign.starts_at) == (NOON, None)
        await set_clock(owner, LATE)
        assert await wake(mailing.conn, draft) is None
        await scheduling.pause(mailing.conn, draft, None)
        with pytest.raises(ConflictError, match="campaign resume"):
            await scheduling.start(mailing.conn, draft)
        await mailing.check(draft)


class TestMissed:
    async def scheduled(self, mailing: Mailing, missed_after: timedelta | None) -> int:
        campaign = await mailing.written("null://", addresses(2), missed_after=missed_after)
        await scheduling.schedule(mailing.conn, campaign, LATE)
        return campaign

    @pytest.mark.parametrize(
        ("missed_after", "late", "event", "status"),
        [
            (HOUR, HOUR, "Started", "sending"),
            (HOUR, HOUR + timedelta(microseconds=1), "Paused", "paused"),
            (None, timedelta(days=365), "Started", "sending"),
            (campaigns.MISSED_AFTER, timedelta(hours=5), "Paused", "paused"),  # a restored backup
        ],
    )
    async def test_a_start_that_was_missed(
        self, mailing: Mailing, owner: Connection, draft: int, missed_after, late, event, status
    ) -> None:
        campaign = await self.scheduled(mailing, missed_after)
        await set_clock(owner, LATE + late)
        assert await wake(mailing.conn, campaign) == event
        assert await mailing.status(campaign) == status
        assert await mailing.paused_for(campaign) == ("missed" if status == "paused" else None)
        work = await mailing.conn.fetchrow("SELECT campaigns, waking FROM next_work(1)")
        assert tuple(work) == ([campaign] if status == "sending" else [], [])  # it stays held until somebody resumes it
        await mailing.check(campaign)
        assert draft

    async def test_the_limit_can_be_changed_before(self, mailing: Mailing, owner: Connection, draft: int) -> None:
        campaign = await self.scheduled(mailing, HOUR)
        assert await scheduling.set_missed(mailing.conn, campaign, 3 * HOUR)
        assert not await scheduling.set_missed(mailing.conn, campaign, 3 * HOUR)
        (*_, changed) = await mailing.events(campaign)
        assert (changed.type, changed.body) == ("Changed", {"fields": ["missed_after"], "missed_after": 3 * 3600})
        await set_clock(owner, LATE + 2 * HOUR)
        assert await wake(mailing.conn, campaign) == "Started"
        with pytest.raises(ConflictError):
            await scheduling.set_missed(mailing.conn, campaign, HOUR)
        await mailing.check(campaign)
        assert draft


class TestPause:
    async def test_it_resumes_by_itself(self, mailing: Mailing, owner: Connection, draft: int) -> None:
        await mailing.change(draft, "Started")
        assert await scheduling.pause(mailing.conn, draft, LATE)
        assert not await scheduling.pause(mailing.conn, draft, LATE)
        await set_clock(owner, LATE - MINUTE)
        assert await wake(mailing.conn, draft) is None
        assert await mailing.conn.fetchval("SELECT wake_in FROM next_work(1)") == MINUTE
        await set_clock(owner, LATE)
        assert await mailing.conn.fetchval("SELECT waking FROM next_work(1)") == [draft]
        assert await wake(mailing.conn, draft) == "Resumed"
        assert (await mailing.events(draft))[-1].body == {"by": "schedule"}
        await mailing.check(draft)

    async def test_who_says_so_now_has_the_last_word(self, mailing: Mailing, owner: Connection, draft: int) -> None:
        """A pause for a quota would end by itself; an operator's must not, nor end at another time."""
        await mailing.change(draft, "Started")
        await campaigns.pause(mailing.conn, draft, "provider_quota", HOUR)
        assert (await campaigns.read(mailing.conn, draft)).resume_at == LATE
        assert await scheduling.pause(mailing.conn, draft, None)
        assert await mailing.paused_for(draft) == "operator"
        await set_clock(owner, LATE + HOUR)
        assert await wake(mailing.conn, draft) is None
        assert await scheduling.pause(mailing.conn, draft, LATE + 2 * HOUR)
        assert (await campaigns.read(mailing.conn, draft)).resume_at == LATE + 2 * HOUR
        assert not (await verify(mailing.conn, draft)).differences

    async def test_the_past_is_refused(self, mailing: Mailing, draft: int) -> None:
        await mailing.change(draft, "Started")
        with pytest.raises(DataError, match="is past"):
            await scheduling.pause(mailing.conn, draft, NOON)
        assert await mailing.status(draft) == "sending"

    @pytest.mark.parametrize("event", [None, "Cancelled"])
    async def test_only_what_is_being_sent(self, mailing: Mailing, draft: int, event: str | None) -> None:
        if event is not None:
            await mailing.change(draft, event)
        with pytest.raises(ConflictError, match="cannot be paused"):
            await scheduling.pause(mailing.conn, draft, None)


async def test_whoever_is_at_it_is_not_waited_for(mailing: Mailing, owner: Connection, draft: int) -> None:
    """An import of a million people holds the campaign's lock for a while; a worker has others to serve."""
    await scheduling.schedule(mailing.conn, draft, LATE)
    await set_clock(owner, LATE)
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock_shared(lock_key('campaign', $1))", draft)
        assert await wake(mailing.conn, draft) == "busy"
    assert await wake(mailing.conn, draft) == "Started"


@pytest.mark.parametrize("zone", ["Pacific/Chatham", "Asia/Kolkata", "America/New_York"])
async def test_zones_of_server_and_client_move_nothing(
    mailing: Mailing, database: str, owner: Connection, draft: int, zone: str
) -> None:
    """A day of `--expires` and `--missed` has 24 hours, also where the session's zone says otherwise."""
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} SET timezone = '{zone}'")
    other = await Database(database).connect(role=None)
    await other.execute(f"SET timezone = '{zone}'")
    try:
        at = NOON.replace(month=3, day=13, year=2027)  # a day before New York's clocks go forward
        day = timedelta(days=1)
        campaign = await mailing.written("null://", addresses(1), missed_after=day, expires=day)
        await scheduling.schedule(mailing.conn, campaign, at)
        await set_clock(owner, at - MINUTE)
        assert await wake(other, campaign) is None
        await set_clock(owner, at + day)
        assert await wake(other, campaign) == "Started"
        worker = await calls.enlist(mailing.conn)
        await set_clock(owner, at + 2 * day)
        (row,) = (await calls.claim(other, campaign, worker)).rows
        await calls.settle(other, campaign, [calls.released(row)])
        await set_clock(owner, at + 2 * day + MINUTE)
        claim = await calls.claim(other, campaign, worker)
        assert (list(claim.rows), claim.skipped) == ([], 1)
        await mailing.check(campaign)
    finally:
        await other.close()
    assert draft
