"""Workers whose database is a pooler, with the server's own address beside it and without."""

from datetime import timedelta

from structlog.testing import capture_logs

from postledger.database import Connection, Database
from postledger.workers.session import FALLBACK_SWEEP, IDLE_SWEEP
from tests import campaigns as calls
from tests.cli.conftest import Desk
from tests.eventually import eventually
from tests.pooled.pooler import LOGIN
from tests.workers.mailing import Mailing, addresses

SESSIONS = """SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
              WHERE l.locktype = 'advisory' AND a.usename = $1 AND a.datname = current_database()"""
"""Advisory locks in the pooler's sessions."""


async def left_behind(owner: Connection) -> int:
    return await owner.fetchval(SESSIONS, LOGIN)


async def test_with_listen_everything_works(mailing: Mailing, database: str, owner: Connection) -> None:
    campaign = await mailing.written("null://", addresses(300))
    async with mailing.working(listen=Database(database)) as worker:
        assert worker.session.hears
        assert not worker.session.lease_only
        assert worker.session.sweep_in == IDLE_SWEEP
        await eventually(lambda: _true(worker.dispatcher.rest.is_set()))
        await mailing.change(campaign, "Started")  # heard, or it would wait for the sweep
        await mailing.until(campaign, "completed", within=IDLE_SWEEP / 2)
    await mailing.check(campaign)
    assert await left_behind(owner) == 0


async def test_without_it_sweeps_and_says_so_once(mailing: Mailing, owner: Connection) -> None:
    campaign = await mailing.written("null://", addresses(300))
    with capture_logs() as logs:
        async with mailing.working() as worker:
            assert not worker.session.hears
            assert worker.session.lease_only
            assert worker.session.sweep_in == FALLBACK_SWEEP
            worker.session.disconnect()
            await eventually(lambda: _true(worker.session.number > 2))
            await mailing.change(campaign, "Started")
            await mailing.until(campaign, "completed")
    await mailing.check(campaign)
    assert [entry["event"] for entry in logs].count("notifications_unheard") == 1
    assert await left_behind(owner) == 0


async def test_one_that_is_killed_is_found_by_its_lease(mailing: Mailing, owner: Connection) -> None:
    """By one that cannot lock, and whose lock nobody could find free."""
    campaign = await mailing.started("null://", addresses(40))
    lease = timedelta(seconds=2)
    async with Database(mailing.database.dsn).connection() as conn:
        dead = await calls.enlist(conn)
        await conn.fetchval("SELECT relock_worker($1, true)", dead)
        assert len((await calls.claim(conn, campaign, dead, 15)).rows) == 15
    async with mailing.working(lease_in=lease):
        await mailing.until(campaign, "completed")
    assert (await mailing.happened(campaign))["OutcomeUnknown"] == 15
    assert await mailing.counts(campaign) == {"sent": 40}
    await mailing.check(campaign)
    assert await owner.fetchval("SELECT ended FROM workers WHERE id = $1", dead) == "dead"
    assert await left_behind(owner) == 0


async def test_two_that_cannot_lock_do_not_bury_each_other(mailing: Mailing) -> None:
    """The lease is far longer than a look; what is in flight with one is nothing for the other."""
    campaign = await mailing.started("null://", addresses(3000))
    async with mailing.working(), mailing.working():
        await mailing.until(campaign, "completed")
    assert (await mailing.happened(campaign))["OutcomeUnknown"] == 0
    await mailing.check(campaign)


async def test_a_pooler_that_loses_its_sessions_loses_nothing_else(mailing: Mailing, owner: Connection) -> None:
    campaign = await mailing.started("null://", addresses(5000))
    settled = "SELECT count(*) FROM events WHERE campaign_id = $1 AND type = 'Sent'"
    async with mailing.working():
        for some in (1, 1000, 2500, 4000):

            async def reached(some: int = some) -> None:
                assert await owner.fetchval(settled, campaign) >= some

            await eventually(reached, within=30)
            await owner.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", LOGIN)
        await mailing.until(campaign, "completed")
    await mailing.check(campaign)


def test_send_and_audit_from_the_command_line(desk: Desk, pooled: Database, database: str) -> None:
    through = {"POSTLEDGER_DATABASE": pooled.dsn, "POSTLEDGER_LISTEN": ""}
    people = desk.shell.people(50)
    for name, listen in (("alone", ""), ("beside", database)):
        way = through | {"POSTLEDGER_LISTEN": listen}
        ran = desk.run(*desk.shell.letter_to(people, name=name), "--json", **way)
        assert ran.code == 0, ran.err
        assert ran.document["counts"]["sent"] == 50
        assert ("notifications_unheard" in ran.err) == (not listen)
        history = desk.run("audit", "history", name, "k7", "--json", **through)
        assert [event["type"] for event in history.document["items"]] == ["Queued", "Claimed", "Sent"]
        replay = desk.run("audit", "replay", name, "--json", **through)
        assert len(replay.out.splitlines()) > 150
    query = desk.shell.letter_to(people, name="asked")
    query[1:3] = ["--query", "SELECT 'ann@example.org' AS email, 'Ann' AS name, 'Ulm' AS town"]
    alone, beside = (desk.run(*query, **through | {"POSTLEDGER_LISTEN": listen}) for listen in ("", database))
    assert (alone.code, beside.code) == (78, 0)
    assert "name the server itself with --listen" in alone.err
    assert desk.run("contacts", "import", "--list", "digest", "--to", people, **through).code == 0
    assert desk.run("campaign", "show", "asked", "--json", **through).document["counts"]["sent"] == 1
    ran = desk.run("audit", "verify", "--json", **through)
    assert (ran.code, ran.document["equal"]) == (0, True)
    alone = desk.run("doctor", "--json", **through)
    assert (alone.code, alone.document["checks"][-1]["name"]) == (78, "notifications")
    assert "--listen" in alone.document["checks"][-1]["remedy"]
    beside = desk.run("doctor", **through | {"POSTLEDGER_LISTEN": database})
    assert beside.code == 0, beside.out


def _true(found: bool) -> None:
    assert found
