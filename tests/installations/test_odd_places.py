"""Databases with odd defaults, schemas by odd names, two installations side by side, very large numbers."""

import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import asyncpg
import pytest

from postledger.database import Connection, Database, migrate
from postledger.events.text import read_moment
from postledger.projections.verify import verify
from tests import campaigns as calls
from tests.cli.conftest import Desk, desk
from tests.eventually import eventually
from tests.workers.mailing import Mailing, addresses

__all__ = ["desk"]

SCHEMA = "Mail-Ops"

DEFAULTS = {
    "default_transaction_isolation": "'serializable'",
    "timezone": "'Pacific/Chatham'",
    "search_path": "''",
    "datestyle": "'German, DMY'",
    "intervalstyle": "'iso_8601'",
    "bytea_output": "'escape'",
    "extra_float_digits": "-15",
    "transform_null_equals": "on",
    "standard_conforming_strings": "off",
    "synchronous_commit": "off",
    "default_transaction_deferrable": "on",
    "array_nulls": "off",
    "plan_cache_mode": "'force_generic_plan'",
    "enable_indexscan": "off",
}
"""Of a database that serves somebody else as well."""

HURRIED = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout")
"""What ends the sessions of a database's other clients early."""


@pytest.fixture
async def odd(empty_database: str) -> str:
    """With defaults that are not ours, and nothing on the search_path."""
    conn = await asyncpg.connect(empty_database)
    name = await conn.fetchval("SELECT current_database()")
    for setting, value in DEFAULTS.items():
        await conn.execute(f"ALTER DATABASE {name} SET {setting} = {value}")
    await conn.close()
    return empty_database


@pytest.fixture
async def hurried(odd: str) -> str:
    """Where nobody may take longer than this, which nothing of ours would survive."""
    conn = await asyncpg.connect(odd)
    name = await conn.fetchval("SELECT current_database()")
    for setting in HURRIED:
        await conn.execute(f"ALTER DATABASE {name} SET {setting} = '2ms'")
    await conn.close()
    return odd


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """We are in Los Angeles."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/Los_Angeles")
        time.tzset()
        yield
    time.tzset()


def moments(value: object) -> Iterator[datetime]:
    """Every time in a JSON document."""
    if isinstance(value, dict):
        for name, member in value.items():
            if (name == "at" or name.endswith("_at")) and isinstance(member, str):
                yield read_moment(member)
            yield from moments(member)
    elif isinstance(value, list):
        for member in value:
            yield from moments(member)


@pytest.mark.usefixtures("far_away")
def test_the_whole_job_where_every_default_is_odd(desk: Desk, hurried: str) -> None:
    where = {"POSTLEDGER_DATABASE": hurried, "POSTLEDGER_SCHEMA": SCHEMA}
    begun = datetime.now(UTC)
    assert desk.run("migrate", "--json", **where).document["schema"] == SCHEMA
    people = desk.shell.people(30)
    sent = desk.run(*desk.shell.letter_to(people, name="spring"), "--json", **where)
    assert (sent.code, sent.document["counts"]["sent"]) == (0, 30), sent.err
    waiting = desk.run(*desk.shell.letter_to(people, name="summer"), "--no-wait", "--json", **where)
    assert waiting.document["counts"]["pending"] == 30
    history = desk.run("audit", "history", "spring", "k7", "--json", **where)
    assert [event["type"] for event in history.document["items"]] == ["Queued", "Claimed", "Sent"]
    for command in (
        ("campaign", "pause", "summer"),
        ("suppress", "p3@example.org"),
        ("campaign", "resume", "summer"),
        ("work", "--until-idle"),
        ("campaign", "list"),
        ("campaign", "recipients", "summer"),
        ("audit", "verify"),
        ("doctor",),
    ):
        ran = desk.run(*command, "--json", **where)
        assert ran.code == 0, (command, ran.out, ran.err)
    shown = desk.run("campaign", "show", "summer", "--json", **where).document
    assert (shown["counts"]["sent"], shown["counts"]["skipped"]) == (29, 1)
    replayed = desk.run("audit", "replay", "spring", "--json", **where)
    assert replayed.code == 0
    ended = datetime.now(UTC)
    times = [*moments(sent.document), *moments(history.document), *moments(shown)]
    assert len(times) > 8
    for moment in times:  # an offset would be hours
        assert abs((moment - begun).total_seconds()) < 600
        assert abs((ended - moment).total_seconds()) < 600


async def test_other_languages_need_no_search_path(odd: str) -> None:
    """An application's own transaction, under its own settings, in serializable isolation."""
    await migrate(odd, schema=SCHEMA)
    database = Database(odd, SCHEMA)
    async with database.connection() as conn:
        mailing = Mailing(database, conn)
        welcome = await mailing.started("null://", [], name="welcome", kind="standing")
        bulk = await mailing.started("null://", addresses(20))
        app = await asyncpg.connect(odd)
        async with app.transaction():
            assert await app.fetchval("SHOW transaction_isolation") == "serializable"
            first = await app.fetchval(
                """SELECT "Mail-Ops".enqueue('welcome', 'zoe@example.org', data => '{"a": 1}')"""
            )
            assert first is not None
        with pytest.raises(asyncpg.PostgresError, match="append-only"):
            await app.execute('DELETE FROM "Mail-Ops".events')
        assert await app.fetchval('SELECT count(*) FROM "Mail-Ops".deliveries') == 21
        assert await app.fetchval('SELECT sum(audience) FROM "Mail-Ops".campaign_progress') == 21
        await app.close()
        async with mailing.working():
            await mailing.until(bulk, "completed")
            await mailing.until_counts(welcome, sent=1)
        await mailing.check(bulk)
        assert (await verify(conn, None)).equal


@pytest.fixture
async def twins(database: str) -> AsyncIterator[tuple[Mailing, Mailing]]:
    """Two installations in one database."""
    await migrate(database, schema=SCHEMA)
    one, two = Database(database), Database(database, SCHEMA)
    async with one.connection() as left, two.connection() as right:
        yield Mailing(one, left), Mailing(two, right)


async def test_two_installations_do_not_hear_each_other(
    twins: tuple[Mailing, Mailing], database: str, owner: Connection
) -> None:
    """What one does from beginning to end wakes nobody of the other; a last call proves that the ear was open."""
    ours, theirs = twins
    heard: list[str] = []
    await theirs.conn.fetchval("SELECT seal()")  # what their installation has written
    ear = await asyncpg.connect(database)
    channels = [
        await theirs.conn.fetchval(f"SELECT {name}()") for name in ("wake_channel", "block_channel", "schema_channel")
    ]
    for channel in channels:
        await ear.add_listener(channel, lambda *found: heard.append(found[2]))
    async with theirs.working(), ours.working():
        await eventually(lambda: _count(heard, 0))
        campaign = await ours.started("null://", addresses(50))
        await ours.until(campaign, "completed")
        assert await ours.conn.fetchval("SELECT count(*) FROM blocks") > 0
        await ours.conn.fetchval("SELECT wake()")
        await theirs.conn.fetchval("SELECT wake()")
        await eventually(lambda: _count(heard, 1))
    assert heard[0] == channels[0]
    assert await theirs.conn.fetchval("SELECT count(*) FROM events WHERE campaign_id > 0") == 0
    await ear.close()


def _count(heard: list[str], n: int) -> None:
    assert len(heard) == n


async def test_two_installations_do_not_lock_each_other(twins: tuple[Mailing, Mailing]) -> None:
    """Campaign 1, worker 1, the sealer and the watch: the same numbers, other locks."""
    ours, theirs = twins
    for mailing in twins:
        assert await mailing.started("null://", addresses(5)) == 1
    workers = [await calls.enlist(mailing.conn) for mailing in twins]
    assert workers == [1, 1]
    async with ours.conn.transaction():
        for kind in ("campaign", "worker", "enqueue"):
            await ours.conn.execute("SELECT pg_advisory_xact_lock(lock_key($1, 1))", kind)
        for kind in ("seal", "watch"):
            await ours.conn.execute("SELECT pg_advisory_xact_lock(lock_key($1))", kind)
        await theirs.conn.execute("SET lock_timeout = '30s'")
        claim = await calls.claim(theirs.conn, 1, 1, 5)
        assert (len(claim.rows), claim.busy) == (5, False)
        await calls.settle(theirs.conn, 1, [calls.sent(row) for row in claim.rows])
        assert await theirs.conn.fetchval("SELECT finish_campaign(1)")
        assert await theirs.conn.fetchval("SELECT seal()") == 1
        assert await theirs.conn.fetchval("SELECT pg_try_advisory_xact_lock(lock_key('watch'))")
        assert await theirs.conn.fetchval("SELECT pg_try_advisory_xact_lock(lock_key('worker', 1))")
        await calls.enqueue(theirs.conn, 1, calls.people(3))


BIG = 2**31 + 10
HUGE = 2**53 - 2
SEQUENCES = """
    SELECT count(setval(c.oid::regclass, {start})) FROM pg_class c
    WHERE c.relkind = 'S' AND c.relnamespace = 'postledger'::regnamespace"""


@pytest.mark.parametrize("start", [BIG, HUGE])
def test_numbers_beyond_every_smaller_type(desk: Desk, start: int) -> None:
    """No integer of 32 bits on the way, and no double: ids are strings in JSON, exact to the last digit."""
    assert desk.sql(SEQUENCES.format(start=start)) >= 7
    people = desk.shell.people(5)
    sent = desk.run(*desk.shell.letter_to(people, name="spring"), "--json")
    assert (sent.code, sent.document["counts"]["sent"]) == (0, 5), sent.err
    assert sent.document["id"] == str(start + 1)
    items = desk.run("campaign", "recipients", "spring", "--json").document["items"]
    ids = sorted(int(item["delivery_id"]) for item in items)
    assert all(isinstance(item["delivery_id"], str) for item in items)
    assert ids[0] > start
    assert ids == sorted(set(ids))
    history = desk.run("audit", "history", "spring", str(ids[0]), "--json").document
    assert [event["type"] for event in history["items"]] == ["Queued", "Claimed", "Sent"]
    for event in history["items"]:
        assert int(event["position"]) > start
        assert (event["campaign_id"], event["delivery_id"]) == (str(start + 1), str(ids[0]))
    claimed = history["items"][1]["body"]
    assert (claimed["worker"], claimed["sender"]) == (str(start + 1), str(start + 1))
    assert desk.run("suppress", "p1@example.org").code == 0
    assert desk.run("audit", "replay", "spring", "--json").code == 0
    assert desk.run("campaign", "show", str(start + 1), "--json").document["id"] == str(start + 1)
    assert desk.sql("SELECT max(upper(positions)) FROM postledger.blocks") > start
    desk.verified()
