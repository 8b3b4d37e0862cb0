import asyncpg
import pytest

from tests.servers import PrivateServer


async def test_each_test_has_a_database_of_its_own(conn: asyncpg.Connection, empty_database: str):
    other = await asyncpg.connect(empty_database)
    try:
        await conn.execute("CREATE TABLE mine (n int)")
        assert await other.fetchval("SELECT to_regclass('mine')") is None
    finally:
        await other.close()


async def test_a_database_is_dropped_with_whoever_is_still_in_it(server: PrivateServer):
    async with server.database() as dsn:
        left = await asyncpg.connect(dsn)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await left.fetchval("SELECT 1")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(dsn)


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_what_was_committed_survives_a_restart(own_server: PrivateServer, end: str):
    before = await asyncpg.connect(own_server.dsn)
    await before.execute("CREATE TABLE kept AS SELECT 7 AS n")
    await (own_server.kill() if end == "kill" else own_server.stop())
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await before.fetchval("SELECT 1")
    await own_server.start()
    after = await asyncpg.connect(own_server.dsn)
    assert await after.fetchval("SELECT n FROM kept") == 7
    await after.close()
