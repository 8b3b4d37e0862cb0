"""Installing the schema: once, by whoever comes first, for whoever may use it."""

import contextlib

import asyncpg
import pytest

from postledger.database import SCHEMA_VERSION, Database, migrate
from postledger.database.migrate import installed_version
from postledger.errors import ConfigurationError, UnavailableError


async def test_a_second_time_changes_nothing(empty_database: str) -> None:
    assert await migrate(empty_database) == SCHEMA_VERSION
    conn = await asyncpg.connect(empty_database)
    before = await conn.fetch("SELECT name, inner_key FROM postledger.secrets ORDER BY name")
    assert await migrate(empty_database) == SCHEMA_VERSION
    assert await conn.fetch("SELECT name, inner_key FROM postledger.secrets ORDER BY name") == before
    assert await conn.fetchval("SELECT count(*) FROM postledger.events WHERE type = 'Migrated'") == 1
    await conn.close()


async def test_a_newer_schema_is_refused(database: str) -> None:
    conn = await asyncpg.connect(database)
    await conn.execute("INSERT INTO postledger.schema_version (version) VALUES ($1)", SCHEMA_VERSION + 1)
    with pytest.raises(ConfigurationError, match=f"version {SCHEMA_VERSION + 1}, newer than the {SCHEMA_VERSION}"):
        await migrate(database)
    await conn.close()


async def test_two_schemas_in_one_database_know_nothing_of_each_other(empty_database: str) -> None:
    names = ("postledger", "Mail-Ops")
    keys, channels = [], []
    for name in names:
        await migrate(empty_database, schema=name)
        async with Database(empty_database, name).connection() as conn:
            assert await installed_version(conn) == SCHEMA_VERSION
            keys.append(await conn.fetchval("SELECT lock_key('campaign', 7)"))
            channels.append(await conn.fetchval("SELECT wake_channel()"))
            assert await conn.fetchval("SELECT lock_key('worker', 7)") not in keys
    assert len(set(keys)) == len(set(channels)) == 2


async def test_without_a_schema_the_remedy_is_named(empty_database: str) -> None:
    conn = await asyncpg.connect(empty_database)
    with contextlib.suppress(asyncpg.DuplicateObjectError):
        await conn.execute("CREATE ROLE postledger_app NOLOGIN")
    await conn.close()
    with pytest.raises(ConfigurationError, match="postledger migrate"):
        async with Database(empty_database).connection() as ours:
            await ours.fetchval("SELECT count(*) FROM campaigns")


async def test_a_login_that_may_not_create_is_told_what_is_needed(empty_database: str) -> None:
    conn = await asyncpg.connect(empty_database)
    await conn.execute("CREATE ROLE plain_login LOGIN")
    try:
        dsn = empty_database.replace("postgres@", "plain_login@", 1)
        with pytest.raises((ConfigurationError, UnavailableError)):
            await migrate(dsn if dsn != empty_database else empty_database + "?user=plain_login")
    finally:
        await conn.execute("DROP ROLE plain_login")
        await conn.close()


async def test_the_app_role_works_in_its_own_time_zone_and_isolation(database: str) -> None:
    admin = await asyncpg.connect(database)
    name = await admin.fetchval("SELECT current_database()")
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    await admin.execute(f"ALTER DATABASE {name} SET timezone = 'Pacific/Chatham'")
    async with Database(database).connection() as conn:
        assert await conn.fetchval("SHOW transaction_isolation") == "read committed"
        assert await conn.fetchval("SHOW timezone") == "UTC"
        assert await conn.fetchval("SELECT current_user") == "postledger_app"
    await admin.close()
