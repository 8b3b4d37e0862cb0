"""An upgraded installation is the same as a fresh one, and keeps what it knew."""
# ruff: noqa: E501 - catalog queries

from pathlib import Path

import asyncpg

from postledger.database import SCHEMA_VERSION, Database, migrate
from postledger.database.migrate import SECRETS, _padded_keys
from postledger.projections.verify import verify

CATALOG = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
               pg_get_expr(d.adbin, d.adrelid), array_to_string(a.attacl, ' ')
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        WHERE c.relnamespace = 'postledger'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v') ORDER BY 1, 2""",
    "relations": """
        SELECT relname, relkind::text, relpersistence::text, array_to_string(reloptions, ' '), array_to_string(relacl, ' ')
        FROM pg_class WHERE relnamespace = 'postledger'::regnamespace ORDER BY 1""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'postledger' ORDER BY 1",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'postledger'::regnamespace AND contype <> 'n' ORDER BY 1, 2""",
    "triggers": "SELECT tgrelid::regclass::text, tgname, tgenabled::text, tgtype FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1, 2",
    "functions": """
        SELECT p.oid::regprocedure::text, p.prosrc, p.provolatile::text, p.prosecdef, array_to_string(p.proconfig, ' '), pg_get_function_result(p.oid),
               array_to_string(p.proacl, ' ')
        FROM pg_proc p WHERE pronamespace = 'postledger'::regnamespace ORDER BY 1""",
    "views": "SELECT viewname, definition FROM pg_views WHERE schemaname = 'postledger' ORDER BY 1",
    "transitions": "SELECT machine, event, from_status, to_status FROM postledger.transitions ORDER BY 1, 2, 3",
    "followers": "SELECT name, lane, block_no, position FROM postledger.followers ORDER BY 1",
}


async def install_version_1(conn: asyncpg.Connection) -> None:
    """As the program of version 1 did it."""
    async with conn.transaction():
        await conn.execute("CREATE SCHEMA postledger; SET LOCAL search_path = postledger, pg_temp")
        await conn.execute((Path(__file__).parent / "schema_1.sql").read_text(encoding="utf-8"))
        for name in SECRETS:
            await conn.execute("INSERT INTO secrets VALUES ($1, $2, $3)", name, *_padded_keys(b"k" * 32))
        await conn.execute("INSERT INTO schema_version (version) VALUES (1)")
        await conn.execute(
            "INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES (0, 0, 1, 'Migrated', '{\"version\": 1}')"
        )


async def populate(conn: asyncpg.Connection) -> None:
    await conn.execute(
        """
        SET search_path = postledger, pg_temp;
        INSERT INTO senders (name, url) VALUES ('null://', 'null://');
        INSERT INTO templates (hash, subject, html) VALUES ('t', 's', 'h');
        SELECT draft_campaign('old', 'bulk', 1, 't', 'a@example.com', NULL, 'resend', 5, NULL, '24 hours', 0);
        INSERT INTO imports (source, state, rows) VALUES ('csv', 'staged', 100);
        INSERT INTO import_rows (import_id, line, key, email, data)
        SELECT 1, n, 'k' || n, 'u' || n || '@example.com', '{}' FROM generate_series(1, 100) n;
        SELECT enqueue_import(1, 1);
        SELECT change_campaign(1, 'Started');
        SELECT enlist_worker('one');
        SELECT claim(1, gen_random_uuid(), 1, 10, false);
        SELECT suppress('u50@example.com', 'operator', 'test');
        """
    )


async def catalog(dsn: str) -> dict[str, list[tuple[object, ...]]]:
    conn = await asyncpg.connect(dsn)
    found = {name: [tuple(row) for row in await conn.fetch(query)] for name, query in CATALOG.items()}
    await conn.close()
    return found


async def test_an_upgraded_schema_is_a_fresh_one(empty_database: str, database: str) -> None:
    conn = await asyncpg.connect(empty_database)
    await install_version_1(conn)
    await conn.close()
    assert await migrate(empty_database) == SCHEMA_VERSION
    upgraded, fresh = await catalog(empty_database), await catalog(database)
    for name in CATALOG:
        assert upgraded[name] == fresh[name], name


async def test_what_was_written_before_goes_on_after(empty_database: str) -> None:
    conn = await asyncpg.connect(empty_database)
    await install_version_1(conn)
    await populate(conn)
    before = await conn.fetch("SELECT position, body::text FROM postledger.events WHERE campaign_id = 1 ORDER BY 1")
    await conn.close()
    assert await migrate(empty_database) == SCHEMA_VERSION
    assert await migrate(empty_database) == SCHEMA_VERSION
    async with Database(empty_database).connection() as ours:
        assert await ours.fetch("SELECT position, body::text FROM events WHERE campaign_id = 1 ORDER BY 1") == before
        assert (await verify(ours, None)).equal
        assert await ours.fetchval("SELECT seal()") == 1
        assert await ours.fetchval("SELECT follow_progress(100000)") > len(before)
        assert await ours.fetchrow("SELECT pending, sending FROM progress WHERE campaign_id = 1") == (90, 10)
        versions = await ours.fetch("SELECT body FROM events WHERE type = 'Migrated' ORDER BY version")
        assert [row["body"]["version"] for row in versions] == list(range(1, SCHEMA_VERSION + 1))
