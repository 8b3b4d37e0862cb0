"""An installation of version 1, as its program made and used it."""
# ruff: noqa: E501 - SQL

import asyncio
import uuid
from pathlib import Path

import asyncpg

from postledger.database.migrate import SECRETS, _padded_keys

POPULATED = """
    SET search_path = postledger, pg_temp;
    INSERT INTO senders (name, url) VALUES ('null://', 'null://');
    INSERT INTO templates (hash, subject, html) VALUES ('t', 's', 'h');
    SELECT draft_campaign(name, 'bulk', 1, 't', 'a@example.com', NULL, 'resend', 5, NULL, '24 hours', 0)
    FROM unnest(ARRAY['claimed', 'finished', 'paused', 'cancelled', 'draft']) AS name;
    INSERT INTO imports (source, state, rows) SELECT 'csv', 'staged', 100 FROM generate_series(1, 5);
    INSERT INTO import_rows (import_id, line, key, email, data)
    SELECT i, n, 'k' || n, 'u' || n || '@example.com', '{}' FROM generate_series(1, 5) i, generate_series(1, 100) n;
    SELECT enqueue_import(i, i) FROM generate_series(1, 5) i;
    SELECT change_campaign(i, 'Started') FROM generate_series(1, 4) i;
    SELECT enlist_worker('one'), enlist_worker('dead'), enlist_worker('gone');
    SELECT claim(1, gen_random_uuid(), 1, 10, false);
    SELECT claim(1, gen_random_uuid(), 2, 10, false);
    UPDATE workers SET ended = 'dead', ended_at = clock() WHERE id = 2;
    SELECT leave_worker(3);
    SELECT claim(2, '00000000-0000-0000-0000-000000000002', 1, 100, false);
    SELECT settle(2, array_agg(k.claim_id), array_agg(d.id), array_agg(d.version), array_agg('Sent'::text),
                  array_agg('{"attempt": 1, "provider": "null", "message_id": "m"}'::jsonb), NULL, NULL, NULL)
    FROM claims k, unnest(k.delivery_ids, k.versions) AS d(id, version) WHERE k.campaign_id = 2;
    SELECT finish_campaign(2);
    SELECT claim(3, gen_random_uuid(), 1, 10, false);
    SELECT change_campaign(3, 'Paused', '{"reason": "operator"}');
    SELECT change_campaign(4, 'Cancelled');
    SELECT suppress('u50@example.com', 'operator', 'test');
"""

MANY = 4000

CROWD = f"""
    SET search_path = postledger, pg_temp;
    INSERT INTO senders (name, url) VALUES ('null://', 'null://');
    INSERT INTO templates (hash, subject, html) VALUES ('t', 's', 'h');
    SELECT draft_campaign('crowd', 'bulk', 1, 't', 'a@example.com', NULL, 'resend', 5, NULL, '24 hours', 0);
    INSERT INTO imports (source, state, rows) VALUES ('csv', 'staged', {MANY});
    INSERT INTO import_rows (import_id, line, key, email, data)
    SELECT 1, n, 'k' || n, 'u' || n || '@example.com', '{{}}' FROM generate_series(1, {MANY}) n;
    SELECT enqueue_import(1, 1);
    SELECT change_campaign(1, 'Started');
"""


async def work(dsn: str, hurry: asyncio.Event) -> int:
    """A worker's calls, one row at a time, or a hundred in a hurry, until nothing is left; how many it has sent."""
    settings = {
        "search_path": "postledger, pg_temp",
        "role": "postledger_app",
        "default_transaction_isolation": "read committed",
    }
    conn = await asyncpg.connect(dsn, server_settings=settings)
    worker = await conn.fetchval("SELECT enlist_worker('old')")
    sent = 0
    while (await _call(conn, "SELECT campaigns FROM next_work($1, $2)", worker, None))["campaigns"]:
        claim = uuid.uuid4()
        got = await _call(
            conn,
            "SELECT delivery_ids, versions FROM claim($1, $2, $3, $4, $5)",
            *(1, claim, worker, 100 if hurry.is_set() else 1, True),
        )
        if got["delivery_ids"] is None:
            continue
        n = len(got["delivery_ids"])
        permit = await _call(conn, "SELECT alive, lost FROM permit($1, $2, $3, $4, $5)", worker, 1, [claim], [], True)
        assert permit["alive"]
        assert not permit["lost"]
        body = '{"attempt": 1, "provider": "null", "message_id": "m"}'
        await _call(
            conn,
            "SELECT applied FROM settle($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            *(1, [claim] * n, got["delivery_ids"], got["versions"], ["Sent"] * n, [body] * n, None, None, None),
        )
        sent += n
    await conn.close()
    return sent


async def _call(conn: asyncpg.Connection, query: str, *args: object) -> asyncpg.Record:
    """Again, where a function of another signature has taken the place of the one just being called."""
    try:
        return await conn.fetchrow(query, *args)
    except asyncpg.InternalServerError as error:
        if "cache lookup failed for function" not in str(error):
            raise
    return await conn.fetchrow(query, *args)


async def install(dsn: str, *, populated: bool = False) -> None:
    """As the program of version 1 did it."""
    conn = await asyncpg.connect(dsn)
    async with conn.transaction(isolation="read_committed"):
        await conn.execute("CREATE SCHEMA postledger; SET LOCAL search_path = postledger, pg_temp")
        await conn.execute((Path(__file__).parent / "schema_1.sql").read_text(encoding="utf-8"))
        for name in SECRETS:
            await conn.execute("INSERT INTO secrets VALUES ($1, $2, $3)", name, *_padded_keys(b"k" * 32))
        await conn.execute("INSERT INTO schema_version (version) VALUES (1)")
        await conn.execute(
            "INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES (0, 0, 1, 'Migrated', '{\"version\": 1}')"
        )
    if populated:
        await conn.execute(POPULATED)
    await conn.close()
