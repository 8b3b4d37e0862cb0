"""What a login may that has the role postledger_enqueue: call enqueue(), and nothing else."""

import asyncpg
import pytest

from postledger.database import Connection
from tests.enqueue.conftest import Application


async def test_it_may_enqueue(app: Connection, welcome: int, application: Application) -> None:
    conn = await application()
    async with conn.transaction():
        made = await conn.fetchval("SELECT postledger.enqueue('welcome', 'ann@x.example', 'user:1', 'Ann')")
    assert await app.fetchval("SELECT delivery_id FROM recipients") == made


async def test_it_may_read_and_write_nothing(app: Connection, welcome: int, application: Application) -> None:
    conn = await application()
    await conn.execute("SET search_path = postledger")
    relations = await app.fetch(
        "SELECT relname FROM pg_class"
        " WHERE relnamespace = 'postledger'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')"
    )
    assert {"recipients", "events", "secrets", "deliveries", "delivery_ids"} <= {row["relname"] for row in relations}
    for row in relations:
        for statement in ("SELECT FROM {}", "COPY {} TO STDOUT"):
            with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.WrongObjectTypeError)):
                await conn.execute(statement.format(row["relname"]))
    may = await conn.fetch(
        "SELECT relname, privilege"
        " FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) AS privilege"
        " WHERE relnamespace = 'postledger'::regnamespace AND relkind IN ('r', 'p', 'v')"
        " AND (has_table_privilege(oid, privilege)"
        "      OR privilege IN ('SELECT', 'INSERT', 'UPDATE') AND has_any_column_privilege(oid, privilege))"
    )
    assert may == []


async def test_it_may_call_nothing_else(app: Connection, application: Application) -> None:
    conn = await application()
    allowed = await conn.fetch(
        "SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'postledger'::regnamespace"
        " AND has_function_privilege(oid, 'EXECUTE')"
    )
    assert [row[0].partition("(")[0] for row in allowed] == ["postledger.enqueue"]


async def test_nobody_without_a_role_may_call_it(
    welcome: int, server, database: str, login: str, application: Application
) -> None:
    await server.execute(f"REVOKE postledger_enqueue FROM {login}")
    conn = await application()
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await conn.fetchval("SELECT postledger.enqueue('welcome', 'ann@x.example')")


async def test_who_may_only_read_may_not_call_it(owner: Connection, welcome: int) -> None:
    await owner.execute("SET ROLE postledger_audit")
    assert await owner.fetchval("SELECT count(*) FROM recipients") == 0
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await owner.fetchval("SELECT enqueue('welcome', 'ann@x.example')")


async def test_no_table_of_the_applications_own_is_taken_for_ours(
    app: Connection, welcome: int, application: Application
) -> None:
    """It runs with its owner's rights: a temporary table or a search_path must not lead it astray."""
    conn = await application()
    await conn.execute("CREATE TEMP TABLE recipients (mine text); CREATE TEMP TABLE campaigns AS SELECT 'x' AS name")
    await conn.execute("SET search_path = pg_temp, postledger")
    assert await conn.fetchval("SELECT enqueue('welcome', 'ann@x.example')") is not None
    assert await app.fetchval("SELECT count(*) FROM recipients") == 1


FORBIDDEN = [
    "SET ROLE postledger_app",
    "SET ROLE postledger_audit",
    "SET SESSION AUTHORIZATION postledger_app",
    "CREATE TABLE postledger.mine (n int)",
    "CREATE FUNCTION postledger.wake() RETURNS void LANGUAGE sql AS ''",
    "CREATE OR REPLACE FUNCTION postledger.clock() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    "ALTER FUNCTION postledger.enqueue(text, text, text, text, jsonb, timestamptz, boolean) SET search_path = pg_temp",
    "DROP FUNCTION postledger.enqueue(text, text, text, text, jsonb, timestamptz, boolean)",
    "ALTER TABLE postledger.campaigns DISABLE TRIGGER ALL",
    "TRUNCATE postledger.events",
    "SELECT nextval('postledger.delivery_ids')",
    "SELECT postledger.suppress('ann@x.example', 'bounced', 'x')",
    "SELECT postledger.change_campaign(1, 'Cancelled')",
    "SELECT postledger.address_hash('ann@x.example')",
    "SELECT postledger.seal()",
    "GRANT postledger_app TO CURRENT_USER",
    "GRANT postledger_enqueue TO postledger_audit",
]


async def test_it_may_change_nothing_and_become_nobody_else(
    app: Connection, welcome: int, application: Application
) -> None:
    conn = await application()
    for statement in FORBIDDEN:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute(statement)
    assert await app.fetchval("SELECT status::text FROM campaigns WHERE id = $1", welcome) == "sending"
