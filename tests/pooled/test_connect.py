"""Connections through a pooler: what they are given, what they leave behind, and what is said when it cannot work."""

import asyncio
from urllib.parse import urlsplit

import pytest

from postledger.database import SCHEMA_VERSION, Connection, Database, cursor, is_pooled, migrate, prepare_login
from postledger.errors import ConfigurationError, UnavailableError
from tests import campaigns as calls
from tests.pooled.pooler import LOGIN, Pooler, pooler
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing, addresses

IGNORED = "search_path, role, default_transaction_isolation, jit"


async def standing(conn: Connection) -> tuple[object, ...]:
    query = """SELECT current_schema(), current_user::text, current_setting('default_transaction_isolation'),
                      current_setting('TimeZone'), current_setting('jit')"""
    return tuple(await conn.fetchrow(query))


async def test_a_login_that_was_prepared_has_everything(pooled: Database) -> None:
    async with pooled.connection(label="here", keepalive=True) as conn:
        assert is_pooled(conn)
        assert await standing(conn) == ("postledger", "postledger_app", "read committed", "UTC", "off")
        assert await conn.fetchval("SELECT current_setting('application_name')") == "postledger here"


async def test_the_server_itself_is_no_pooler(database: str) -> None:
    async with Database(database).connection(label="here") as conn:
        assert not is_pooled(conn)


async def test_one_that_ignores_what_it_cannot_pass_on_is_found_out(
    server: PrivateServer, database: str, logins: None
) -> None:
    async with pooler(server, ignore_startup_parameters=IGNORED) as bouncer:
        with pytest.raises(
            ConfigurationError,
            match=r"not the right search_path, role(, default_transaction_isolation)?: .*migrate --login",
        ):
            await Database(bouncer.dsn(database, "stranger")).connect()
        await prepare_login(Database(database), LOGIN)
        async with Database(bouncer.dsn(database)).connection() as conn:
            assert is_pooled(conn)
            assert await conn.fetchval("SELECT current_user") == "postledger_app"


async def test_a_login_that_was_not_prepared_names_the_remedy(
    bouncer: Pooler, database: str, owner: Connection
) -> None:
    name = await owner.fetchval("SELECT current_database()")
    await owner.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    missing = "search_path, role, default_transaction_isolation"
    with pytest.raises(ConfigurationError, match=rf"not the right {missing}: .*migrate --login NAME"):
        await Database(bouncer.dsn(database, "stranger")).connect()


async def test_in_session_mode_it_is_as_without(
    server: PrivateServer, empty_database: str, owner: Connection, logins: None
) -> None:
    """No login is prepared; migration, a listener's ear and locks are the session's own, and nothing outlasts it."""
    async with pooler(server, size=20, pool_mode="session") as bouncer:
        assert await migrate(bouncer.dsn(empty_database, "postgres")) == SCHEMA_VERSION
        await owner.execute(f"GRANT postledger_app TO {LOGIN}")
        database = Database(bouncer.dsn(empty_database))
        async with database.connection() as conn:
            assert not is_pooled(conn)
            assert await standing(conn) == ("postledger", "postledger_app", "read committed", "UTC", "off")
            mailing = Mailing(database, conn)
            async with mailing.working() as worker:
                assert worker.session.hears
                assert not worker.session.lease_only
                campaign = await mailing.started("null://", addresses(30))
                await mailing.until(campaign, "completed")
            await mailing.check(campaign)
        for _ in range(3):
            async with Database(bouncer.dsn(empty_database, "stranger"))._through_pooler() as bare:
                left = """
                    SELECT current_setting('search_path'), current_user::text,
                           (SELECT count(*) FROM pg_prepared_statements WHERE name <> ''),
                           (SELECT count(*) FROM pg_listening_channels()),
                           (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())"""
                assert tuple(await bare.fetchrow(left)) == ('"$user", public', "stranger", 0, 0, 0)


async def test_a_session_is_looked_for_without_a_trace_where_there_is_none(pooled: Database) -> None:
    async with pooled.connection(session=True) as conn:
        assert is_pooled(conn)
        async with conn.transaction(), pooled.connection() as other, other.transaction():
            for one in (conn, other):
                assert await one.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0


async def test_no_hurry_of_the_server_is_ours(pooled: Database, database: str, owner: Connection) -> None:
    name = await owner.fetchval("SELECT current_database()")
    hurried = "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"
    for setting in hurried:
        await owner.execute(f"ALTER DATABASE {name} SET {setting} = '1ms'")
    for way in (pooled, Database(database)):
        async with way.connection() as conn:
            shown = [await conn.fetchval(f"SHOW {setting}") for setting in hurried]
            assert shown == ["0", "0", "0"]


async def test_no_length_of_a_transaction_is_ours(database: str, owner: Connection) -> None:
    """A setting that servers before 17 do not know."""
    if await owner.fetchval("SELECT count(*) FROM pg_settings WHERE name = 'transaction_timeout'"):
        await owner.execute(f"ALTER DATABASE {urlsplit(database).path[1:]} SET transaction_timeout = '1min'")
    async with Database(database).connection() as conn:
        assert await conn.fetchval("SELECT current_setting('transaction_timeout', true)") in (None, "0")


async def test_what_a_pooler_says_itself_reaches_the_user(bouncer: Pooler, database: str) -> None:
    with pytest.raises(UnavailableError, match=r"nobody"):
        await Database(bouncer.dsn(database, "nobody")).connect()


async def test_migration_wants_the_server_itself(bouncer: Pooler, database: str) -> None:
    with pytest.raises(ConfigurationError, match="behind a pooler in transaction mode: name the server itself"):
        await migrate(bouncer.dsn(database, "postgres"))


async def test_who_is_prepared(database: str, owner: Connection, logins: None) -> None:
    await prepare_login(Database(database), LOGIN)
    await prepare_login(Database(database), LOGIN)
    with pytest.raises(ConfigurationError, match="there is no login nobody"):
        await prepare_login(Database(database), "nobody")
    with pytest.raises(ConfigurationError, match="has to stay the tables' owner"):
        await prepare_login(Database(database), "postgres")
    query = "SELECT setconfig FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole WHERE r.rolname = $1"
    assert await owner.fetchval(query, "postgres") is None


async def test_a_schema_by_an_odd_name(bouncer: Pooler, database: str, owner: Connection) -> None:
    await migrate(database, schema='Mail-"Ops"')
    await prepare_login(Database(database, 'Mail-"Ops"'), LOGIN)
    async with Database(bouncer.dsn(database), 'Mail-"Ops"').connection() as conn:
        assert await conn.fetchval("SELECT current_schema()") == 'Mail-"Ops"'
    with pytest.raises(ConfigurationError, match="not the right search_path"):
        await Database(bouncer.dsn(database)).connect()


async def test_calls_of_many_clients_in_few_sessions(server: PrivateServer, database: str, logins: None) -> None:
    """Values of every kind we send and read, each client's own; nothing stays behind in the server's sessions."""
    await prepare_login(Database(database), LOGIN)
    async with pooler(server, size=2) as bouncer:
        pooled = Database(bouncer.dsn(database))
        await asyncio.gather(*(_client(pooled, number) for number in range(8)))
        async with pooled.connection() as conn, conn.transaction(), pooled.connection() as other, other.transaction():
            for one in (conn, other):
                assert await one.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
                assert await one.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
                assert await one.fetchval("SELECT current_setting('jit')") == "off"


async def _client(pooled: Database, number: int) -> None:
    async with pooled.connection() as conn:
        for turn in range(15):
            data = {"client": number, "turn": [turn]}
            query = (
                "SELECT $1::jsonb, 'sending'::delivery_status, '(0,1)'::tid, ARRAY['paused'::campaign_status], now()"
            )
            found = await conn.fetchrow(query, data)
            assert (found[0], found[1], found[2], found[3]) == (data, "sending", (0, 1), ["paused"])
        async with conn.transaction():
            rows = [row["n"] async for row in await cursor(conn, "SELECT n FROM generate_series(1, $1::int) n", 250)]
        assert rows == list(range(1, 251))
        campaign = await calls.started(conn, 30, name=f"campaign {number}")
        worker = await calls.enlist(conn)
        claim = await calls.claim(conn, campaign, worker, 30)
        assert [row.data for row in claim.rows] == [{"n": line} for line in range(2, 32)]
        settled = await calls.settle(conn, campaign, [calls.sent(row) for row in claim.rows])
        assert settled.applied == 30
