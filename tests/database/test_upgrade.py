"""An upgraded installation is the same as a fresh one, and keeps what it knew."""
# ruff: noqa: E501 - catalog queries

import asyncio
import sys
from asyncio.subprocess import PIPE
from typing import TypeAlias

import asyncpg
import pytest

from postledger.database import SCHEMA_VERSION, Database, migrate
from postledger.errors import ConfigurationError, UnavailableError
from postledger.projections.replay import replay
from postledger.projections.verify import verify
from tests.database import version_1
from tests.eventually import eventually
from tests.workers.mailing import Mailing

Catalog: TypeAlias = dict[str, list[tuple[object, ...]]]

CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
               pg_get_expr(d.adbin, d.adrelid), array_to_string(a.attacl, ' ')
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        WHERE c.relnamespace = to_regnamespace('postledger') AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v') ORDER BY 1, 2""",
    "relations": """
        SELECT relname, relkind::text, relpersistence::text, array_to_string(reloptions, ' '), array_to_string(relacl, ' ')
        FROM pg_class WHERE relnamespace = to_regnamespace('postledger') ORDER BY 1""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'postledger' ORDER BY 1",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = to_regnamespace('postledger') AND contype <> 'n' ORDER BY 1, 2""",
    "triggers": "SELECT tgrelid::regclass::text, tgname, tgenabled::text, tgtype FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2",
    "functions": """
        SELECT p.oid::regprocedure::text, p.prosrc, p.provolatile::text, p.prosecdef, replace(array_to_string(p.proconfig, ' '), '"', ''), pg_get_function_result(p.oid),
               array_to_string(p.proacl, ' ')
        FROM pg_proc p WHERE pronamespace = to_regnamespace('postledger') ORDER BY 1""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'postledger' ORDER BY 1",
}
CONTENT = {
    "transitions": "SELECT machine, event, from_status, to_status FROM postledger.transitions ORDER BY 1, 2, 3",
    "followers": "SELECT name, lane, block_no, position FROM postledger.followers ORDER BY 1",
    "epochs": "SELECT epoch, cluster FROM postledger.epochs ORDER BY 1",
}


async def catalog(dsn: str) -> Catalog:
    conn = await asyncpg.connect(dsn)
    found = {name: [tuple(row) for row in await conn.fetch(query)] for name, query in CATALOG.items()}
    await conn.close()
    return found


@pytest.mark.parametrize("early", [False, True])
async def test_an_upgraded_schema_is_a_fresh_one(empty_database: str, database: str, early: bool) -> None:
    """Also one that was installed while version 1 was being built."""
    await version_1.install(empty_database)
    if early:
        conn = await asyncpg.connect(empty_database)
        await conn.execute("ALTER TABLE postledger.workers DROP watched_at")
        await conn.close()
    assert await migrate(empty_database) == SCHEMA_VERSION
    upgraded, fresh = await catalog(empty_database), await catalog(database)
    for name in CATALOG:
        assert upgraded[name] == fresh[name], name
    left, right = await asyncpg.connect(empty_database), await asyncpg.connect(database)
    for name, query in CONTENT.items():
        assert await left.fetch(query) == await right.fetch(query), name
    await left.close()
    await right.close()


async def test_what_was_written_before_goes_on_after(empty_database: str) -> None:
    """Campaigns in every state, rows in the hands of the living, the dead and the gone."""
    await version_1.install(empty_database, populated=True)
    before = await tables(empty_database)
    assert await migrate(empty_database) == SCHEMA_VERSION
    assert await migrate(empty_database) == SCHEMA_VERSION
    assert await tables(empty_database) == before
    database = Database(empty_database)
    async with database.connection() as conn:
        assert (await verify(conn, None)).equal
        for campaign in range(1, 6):
            assert [event async for event, _ in replay(conn, campaign)]
        versions = await conn.fetch("SELECT body FROM events WHERE type = 'Migrated' ORDER BY version")
        assert [row["body"]["version"] for row in versions] == list(range(1, SCHEMA_VERSION + 1))
        assert await conn.fetchval("SELECT seal()") == 1
        while await conn.fetchval("SELECT follow_progress(100000)"):
            pass
        counted = await conn.fetch("SELECT campaign_id, pending, sending, sent FROM progress ORDER BY 1")
        assert [tuple(row) for row in counted][:3] == [(1, 80, 20, 0), (2, 0, 0, 100), (3, 90, 10, 0)]

        await conn.execute("UPDATE workers SET ended = 'dead', ended_at = clock() WHERE ended IS NULL")
        mailing = Mailing(database, conn)
        async with mailing.working():
            await mailing.until(1, "completed")
            await mailing.until_counts(3, pending=100)  # paused: given back, and not sent
            await mailing.until_counts(4, cancelled=100)
        assert await mailing.counts(1) == {"sent": 99, "skipped": 1}
        assert [await mailing.status(campaign) for campaign in (2, 3, 5)] == ["completed", "paused", "draft"]
        assert (await verify(conn, None)).equal


async def tables(dsn: str) -> dict[str, list[object]]:
    """The rows of version 1's own columns."""
    queries = {
        "events": "SELECT position, xid, epoch, campaign_id, delivery_id, version, type, body::text, at FROM events WHERE type <> 'Migrated'",
        "recipients": "SELECT campaign_id, delivery_id, recipient_key, email, data::text, salt, address_hash, once_hash FROM recipients",
        "recipient_queue": "SELECT campaign_id, delivery_id, status, attempt, due_at, version FROM recipient_queue",
        "claims": "SELECT claim_id, worker_id, delivery_ids, versions, unsettled FROM claims",
        "workers": "SELECT id, session, ended, seen_at FROM workers",
        "campaigns": "SELECT id, name, status, version, pause_reason, started_at, finished_at FROM campaigns",
        "suppressions": "SELECT address_hash, contact_id, reason FROM suppressions",
        "secrets": "SELECT name, inner_key, outer_key FROM secrets",
    }
    conn = await asyncpg.connect(dsn, server_settings={"search_path": "postledger"})
    found = {name: await conn.fetch(f"{query} ORDER BY 1, 2") for name, query in queries.items()}
    await conn.close()
    return found


async def test_ten_at_once_upgrade_once(empty_database: str) -> None:
    await version_1.install(empty_database)
    versions = await asyncio.gather(*(migrate(empty_database) for _ in range(10)))
    assert versions == [SCHEMA_VERSION] * 10
    async with Database(empty_database).connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM events WHERE type = 'Migrated'") == SCHEMA_VERSION


BREAK = """
    DROP EVENT TRIGGER IF EXISTS break_off;
    CREATE SEQUENCE IF NOT EXISTS public.steps;
    CREATE OR REPLACE FUNCTION public.break_off() RETURNS event_trigger LANGUAGE plpgsql AS $$
    BEGIN
        IF nextval('public.steps') = {step} THEN
            PERFORM pg_terminate_backend(pg_backend_pid());
        END IF;
    END $$;
    ALTER SEQUENCE public.steps RESTART;
    CREATE EVENT TRIGGER break_off ON ddl_command_end EXECUTE FUNCTION public.break_off();
"""
"""Ends the session after so many steps of a migration; a sequence counts them, whatever is rolled back."""


@pytest.mark.parametrize("populated", [False, True], ids=["install", "upgrade"])
async def test_interrupted_anywhere_it_has_happened_or_it_has_not(
    empty_database: str, database: str, populated: bool
) -> None:
    if populated:
        await version_1.install(empty_database, populated=True)
    conn = await asyncpg.connect(empty_database)
    before, fresh = await catalog(empty_database), await catalog(database)
    for step in (1, 2, 3, 4, 30, 90):
        await conn.execute(BREAK.format(step=step))
        with pytest.raises(UnavailableError):
            await migrate(empty_database)
        assert without_built_before(await catalog(empty_database)) == without_built_before(before)
        await eventually(lambda: _nobody_holds(conn))
    await conn.execute(BREAK.format(step=100_000))
    assert await migrate(empty_database) == SCHEMA_VERSION
    upgraded = await catalog(empty_database)
    for name in CATALOG:
        assert upgraded[name] == fresh[name], name
    assert await conn.fetchval("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0
    await conn.close()


def without_built_before(found: Catalog) -> Catalog:
    """What stands there for the next try is none of the old version's, and harms nobody."""
    built = ("events_1_position_next", "events_1_epoch_xid_idx", "events_1_expr_idx")
    return {name: [row for row in rows if row[0] not in built] for name, rows in found.items()}


async def _nobody_holds(conn: asyncpg.Connection) -> None:
    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    assert await conn.fetchval(held) == 0


async def test_one_that_waits_holds_nobody_up_and_may_be_killed(empty_database: str) -> None:
    """Somebody's open transaction keeps the upgrade waiting; claims go on meanwhile."""
    await version_1.install(empty_database, populated=True)
    conn = await asyncpg.connect(empty_database, server_settings={"search_path": "postledger"})
    busy = await asyncpg.connect(empty_database, server_settings={"search_path": "postledger"})
    async with busy.transaction(isolation="read_committed"):  # it has no snapshot that building an index waits for
        await busy.execute("SELECT FROM recipients LIMIT 1")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", MIGRATE, empty_database, stderr=PIPE, stdout=PIPE
        )
        assert process.stdout is not None
        said = await asyncio.wait_for(process.stdout.readline(), 60)
        assert b"upgrade_waits" in said
        await conn.execute("SET lock_timeout = '20s'")
        assert (
            await conn.fetchval("SELECT cardinality(delivery_ids) FROM claim(1, gen_random_uuid(), 1, 5, false)") == 5
        )
        process.kill()
        await process.communicate()
        await eventually(lambda: _nobody_holds(conn), within=30)
        assert await conn.fetchval("SELECT max(version) FROM schema_version") == 1
        waiting = asyncio.create_task(migrate(empty_database))
        await asyncio.wait([waiting], timeout=0.5)
        assert not waiting.done()
    assert await waiting == SCHEMA_VERSION
    for one in (conn, busy):
        await one.close()


MIGRATE = "import asyncio, sys; from postledger.database import migrate; asyncio.run(migrate(sys.argv[1]))"


async def test_an_index_half_built_is_built_anew(empty_database: str) -> None:
    await version_1.install(empty_database, populated=True)
    conn = await asyncpg.connect(empty_database, server_settings={"search_path": "postledger"})
    busy = await asyncpg.connect(empty_database, server_settings={"search_path": "postledger"})
    async with busy.transaction():
        await busy.execute("INSERT INTO templates (hash, subject, html) VALUES ('u', 's', 'h')")
        await busy.execute("LOCK TABLE events IN ROW EXCLUSIVE MODE")
        await conn.execute("SET statement_timeout = '200ms'")
        with pytest.raises(asyncpg.QueryCanceledError):
            await conn.execute("CREATE INDEX CONCURRENTLY events_1_position_next ON events_1 (position)")
    invalid = "SELECT count(*) FROM pg_index WHERE NOT indisvalid"
    assert await conn.fetchval(invalid) == 1
    assert await migrate(empty_database) == SCHEMA_VERSION
    assert await conn.fetchval(invalid) == 0
    await conn.close()
    await busy.close()


async def test_what_somebody_built_on_ours_is_named(empty_database: str) -> None:
    await version_1.install(empty_database)
    conn = await asyncpg.connect(empty_database)
    await conn.execute("CREATE VIEW public.report AS SELECT status, count(*) FROM postledger.deliveries GROUP BY 1")
    with pytest.raises(ConfigurationError, match=r"view public.report depends on view deliveries\)"):
        await migrate(empty_database)
    await conn.execute("DROP VIEW public.report")
    assert await migrate(empty_database) == SCHEMA_VERSION
    await conn.close()


async def test_workers_of_the_old_version_work_through_the_upgrade(empty_database: str) -> None:
    """By its statements, at full load: no deadlock, no failed call, no lost row."""
    await version_1.install(empty_database)
    conn = await asyncpg.connect(empty_database)
    await conn.execute(version_1.CROWD)
    upgraded = asyncio.Event()
    workers = [asyncio.create_task(version_1.work(empty_database, upgraded)) for _ in range(3)]
    begun = "SELECT count(*) > 100 FROM postledger.events WHERE type = 'Sent'"

    async def busy() -> None:
        assert await conn.fetchval(begun)

    await eventually(busy, within=30)
    assert await migrate(empty_database) == SCHEMA_VERSION
    upgraded.set()
    left = await conn.fetchval("SELECT count(*) FROM postledger.recipient_queue WHERE status <> 'sent'")
    assert left > 0, "the upgrade came too late to meet anybody"
    sent = sum(await asyncio.gather(*workers))
    await conn.close()
    async with Database(empty_database).connection() as ours:
        assert (
            sent == await ours.fetchval("SELECT count(*) FROM recipient_queue WHERE status = 'sent'") == version_1.MANY
        )
        assert (await verify(ours, None)).equal
