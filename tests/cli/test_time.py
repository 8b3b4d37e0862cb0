"""Scheduled, paused for a while, limited: what the commands answer and leave."""

import asyncpg
import pytest

from postledger.demo.behaviours import Answer
from postledger.demo.catcher import Catcher

from .conftest import Desk, Shell

LATER = "2031-03-30 09:00 Europe/Berlin"
INSTANT = "2031-03-30T07:00:00.000000Z"
SHORT = "2031-03-30T07:00:00Z"


def scheduled(desk: Desk, **flags: str) -> None:
    desk.shell.people(3)
    assert desk.send("people.csv", name="spring", at=LATER, **flags).code == 0


def status(desk: Desk) -> str:
    return desk.sql("SELECT status::text FROM postledger.campaigns")


class TestSendAt:
    def test_it_is_written_down_and_nothing_is_sent(self, desk: Desk) -> None:
        desk.shell.people(3)
        ran = desk.send("people.csv", "--json", name="spring", at=LATER, via="smtp://127.0.0.1:1?starttls=off")
        assert (ran.code, ran.err) == (0, "")
        campaign = ran.document
        assert (campaign["status"], campaign["scheduled_at"], campaign["started_at"]) == ("scheduled", INSTANT, None)
        assert (campaign["counts"]["pending"], campaign["report"]["accepted"]) == (3, 3)
        assert (campaign["rate"], campaign["expires"]) == (None, None)
        assert (campaign["missed"], campaign["max_errors"]) == ("4h", "50%")
        desk.verified()

    def test_for_people(self, desk: Desk) -> None:
        desk.shell.people(3)
        ran = desk.send("people.csv", name="spring", at="2031-03-30 02:30 Europe/Berlin", missed="2h")
        assert ran.code == 0
        assert 'campaign "spring" (id 1), 3 recipients' in ran.out
        assert "it starts at 2031-03-30T01:30:00Z; if that is missed by more than 2h, it is held" in ran.out
        assert "02:30:00 is skipped in Europe/Berlin on 2031-03-30: 2031-03-30 03:30:00 is taken" in ran.err
        assert "postledger work" in ran.err

    def test_the_past_is_refused_before_the_people_are_read(self, desk: Desk) -> None:
        desk.shell.people(3)
        ran = desk.send("people.csv", at="2001-01-01T00:00:00Z")
        assert ran.code == 65
        assert "2001-01-01T00:00:00Z is past" in ran.complaint
        assert (
            desk.sql("SELECT (SELECT count(*) FROM postledger.campaigns) + (SELECT count(*) FROM postledger.imports)")
            == 0
        )

    def test_more_people_and_another_time(self, desk: Desk) -> None:
        scheduled(desk)
        desk.shell.people(5)
        again = desk.send("people.csv", "--json", name="spring")
        assert (again.code, again.document["status"], again.document["audience"]) == (0, "scheduled", 5)
        assert again.document["scheduled_at"] == INSTANT
        later = desk.send("people.csv", "--json", name="spring", at="2031-04-01T07:00:00Z")
        assert later.document["scheduled_at"] == "2031-04-01T07:00:00.000000Z"
        assert later.document["report"]["duplicate_key"] == 5
        desk.verified()

    def test_another_letter_is_refused(self, desk: Desk) -> None:
        scheduled(desk)
        ran = desk.send("people.csv", name="spring", subject="Goodbye", at=LATER)
        assert ran.code == 65
        assert "scheduled with another --subject" in ran.complaint
        assert "schedule 1 --off" in ran.complaint
        desk.run("campaign", "schedule", "spring", "--off")
        again = desk.send("people.csv", "--json", name="spring", subject="Goodbye", at=LATER)
        assert (again.code, again.document["subject"], again.document["status"]) == (0, "Goodbye", "scheduled")
        desk.verified()

    def test_after_the_start_only_the_same_time(self, desk: Desk) -> None:
        """The command that a timer repeats must not fail, nor move anything, once the campaign has begun."""
        scheduled(desk)
        desk.sql("UPDATE postledger.campaigns SET starts_at = '2026-01-01T00:00:00Z', missed_after = NULL RETURNING 1")
        desk.sql("SELECT set_config('search_path', 'postledger', false), postledger.wake_campaign(1)")
        assert status(desk) == "sending"
        same = desk.send("people.csv", "--json", name="spring", at="2026-01-01T00:00:00Z", missed="off")
        assert (same.code, same.document["status"]) == (0, "sending")
        other = desk.send("people.csv", name="spring", at=LATER)
        assert (other.code, "has begun" in other.complaint, "--at" in other.complaint) == (65, True, True)

    def test_a_held_one_stays_held(self, desk: Desk) -> None:
        scheduled(desk)
        desk.sql("UPDATE postledger.campaigns SET starts_at = '2026-01-01T00:00:00Z' RETURNING 1")
        desk.sql("SELECT set_config('search_path', 'postledger', false), postledger.wake_campaign(1)")
        ran = desk.send("people.csv", name="spring", at="2026-01-01T00:00:00Z")
        assert (ran.code, status(desk)) == (0, "paused")
        assert "paused (missed)" in ran.err
        assert "campaign resume 1" in ran.err

    def test_a_dry_run_schedules_nothing(self, desk: Desk) -> None:
        desk.shell.people(1)
        ran = desk.send("people.csv", "--dry-run", "--json", at=LATER, rate="5/s")
        assert (ran.code, ran.document["scheduled_at"], ran.document["rate"]) == (0, INSTANT, "5/s")
        assert (
            desk.sql("SELECT (SELECT count(*) FROM postledger.campaigns) + (SELECT count(*) FROM postledger.senders)")
            == 0
        )


class TestCampaign:
    def test_schedule_and_back(self, desk: Desk) -> None:
        scheduled(desk)
        moved = desk.run("campaign", "schedule", "spring", "--at", "2031-04-01T07:00:00Z", "--missed", "30m", "--json")
        assert (moved.code, moved.document["scheduled_at"]) == (0, "2031-04-01T07:00:00.000000Z")
        assert moved.document["missed"] == "30m"
        same = desk.run("campaign", "schedule", "spring", "--at", "2031-04-01 09:00 Europe/Berlin")
        assert "is scheduled for 2031-04-01T07:00:00Z already" in same.out
        assert "scheduled for 2031-04-01T07:00:00Z" in desk.run("campaign", "list").out
        assert "starts by itself no more" in desk.run("campaign", "schedule", "spring", "--off").out
        assert "is not scheduled" in desk.run("campaign", "schedule", "spring", "--off").out
        assert status(desk) == "draft"
        desk.verified()

    def test_a_worker_for_a_timer_does_not_wait_for_it(self, desk: Desk) -> None:
        """It would stand beside those that the timer starts next, for months."""
        scheduled(desk)
        assert desk.run("work", "--until-idle", "--json").document == {"outcomes": {}}

    def test_start_by_hand(self, desk: Desk) -> None:
        scheduled(desk)
        assert "started" in desk.run("campaign", "start", "spring").out
        assert "is being sent already" in desk.run("campaign", "start", "spring").out
        worked = desk.run("work", "--until-idle", "--json")
        assert worked.document == {"outcomes": {"Sent": 3}}
        for command in (["start", "spring"], ["schedule", "spring", "--at", LATER], ["pause", "spring"]):
            ran = desk.run("campaign", *command)
            assert (ran.code, "completed" in ran.complaint) == (65, True)
        desk.verified()

    def test_pause_until(self, desk: Desk) -> None:
        desk.shell.people(2)
        desk.send("people.csv", "--no-wait", name="spring")
        ran = desk.run("campaign", "pause", "spring", "--until", LATER, "--json")
        assert ran.document["pause"] == {"reason": "operator", "resume_at": INSTANT}
        assert f"paused (operator, until {SHORT})" in desk.run("campaign", "show", "spring").out.replace(
            "paused until", ""
        )
        assert "is paused already" in desk.run("campaign", "pause", "spring", "--until", LATER).out
        past = desk.run("campaign", "pause", "spring", "--until", "2001-01-01T00:00:00Z")
        assert (past.code, "is past" in past.complaint) == (65, True)
        for_ever = desk.run("campaign", "pause", "spring", "--json")
        assert for_ever.document["pause"] == {"reason": "operator", "resume_at": None}
        desk.verified()


class TestRateAndErrors:
    def test_a_rate_belongs_to_the_sender(self, desk: Desk) -> None:
        desk.shell.people(2)
        first = desk.send(
            "people.csv", "--no-wait", "--json", name="one", rate="20000/h", expires="36h", max_errors="20%"
        )
        assert [first.document[name] for name in ("rate", "expires", "max_errors")] == ["20000/h", "36h", "20%"]
        other = desk.send("people.csv", "--no-wait", name="other", rate="100/s")
        assert "at most 100/s, with all else that goes out through null://" in other.out
        assert desk.run("campaign", "show", "one", "--json").document["rate"] == "100/s"
        again = desk.send("people.csv", "--no-wait", "--json", name="other")
        assert again.document["rate"] == "100/s"
        off = desk.send("people.csv", "--no-wait", "--json", name="other", rate="off")
        assert off.document["rate"] is None
        assert "rate         off" in desk.run("campaign", "show", "one").out
        desk.verified()

    def test_what_is_said_differently_is_refused_and_what_is_not_said_stays(self, desk: Desk) -> None:
        desk.shell.people(2)
        desk.send("people.csv", "--no-wait", name="spring", expires="36h", max_errors="off", missed="off")
        again = desk.send("people.csv", "--no-wait", "--json", name="spring")
        assert [again.document[name] for name in ("expires", "max_errors", "missed")] == ["36h", None, None]
        ran = desk.send("people.csv", name="spring", expires="off", max_errors="5%", missed="1h")
        assert ran.code == 65
        assert "another --expires, --missed, --max-errors:" in ran.complaint

    def test_it_is_sent_at_that_rate(self, desk: Desk) -> None:
        desk.shell.people(30)
        ran = desk.send("people.csv", "--json", rate="100/s")
        assert (ran.code, ran.document["counts"]["sent"]) == (0, 30)
        assert desk.sql("SELECT count(DISTINCT body ->> 'claim_id') FROM postledger.events WHERE type = 'Claimed'") >= 3
        desk.verified()

    async def test_a_quota_ends_the_command_and_not_the_campaign(self, shell: Shell) -> None:
        shell.people(3)
        reply = Answer("rcpt", 550, "5.4.5 Daily user sending limit exceeded")
        async with Catcher(lambda _: reply) as relay:
            ran = await shell.send("people.csv", name="spring", via=relay.url)
        assert ran.code == 3
        assert "paused (provider_quota, until 2" in ran.err
        assert "goes on by itself" in ran.err
        shown = (await shell.run("campaign", "show", "spring", "--json")).document
        assert (shown["status"], shown["counts"]["pending"]) == ("paused", 3)


@pytest.mark.parametrize(("zone", "clock"), [("Asia/Kolkata", "America/Los_Angeles"), ("Pacific/Chatham", "UTC")])
async def test_zones_of_server_and_machine_change_no_instant(
    shell: Shell, conn: asyncpg.Connection, zone: str, clock: str
) -> None:
    name = await conn.fetchval("SELECT current_database()")
    await conn.execute(f"ALTER DATABASE {name} SET timezone = '{zone}'")
    shell.people(1)
    ran = await shell.run(*shell.letter_to("people.csv", at=LATER), "--json", TZ=clock)
    assert ran.document["scheduled_at"] == INSTANT
    assert await conn.fetchval("SELECT status::text FROM postledger.campaigns") == "scheduled"
    await shell.verified()
