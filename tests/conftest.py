"""What every test may ask for: servers, databases, connections."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import structlog

from postledger.database import Connection, Database
from tests.lab import Lab, open_lab
from tests.servers import PrivateServer, migrate_template, session_server, watched

SERVERS = {"server", "own_server", "small_queue"}
"""Fixtures that start one."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for a server, by whatever other fixture, touches SQL: `-m sql` runs that alone."""
    for item in items:
        if not SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sql)


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Logs as structlog has them, whatever a command that ran in this process has set."""
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    """The session's server (one per xdist worker): create databases on it, never stop it."""
    with session_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
async def database(server: PrivateServer) -> AsyncIterator[str]:
    """The DSN of a database of the test's own, with the schema `postledger` migrated."""
    async with server.database() as dsn:
        yield dsn


@pytest.fixture
async def empty_database(server: PrivateServer) -> AsyncIterator[str]:
    """The DSN of a database of the test's own, with nothing in it."""
    async with server.database("template1") as dsn:
        yield dsn


@pytest.fixture
async def conn(database: str) -> AsyncIterator[asyncpg.Connection]:
    """A connection to `database`."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close(timeout=5)


@pytest.fixture
async def app(database: str) -> AsyncIterator[Connection]:
    """A connection to `database` as the program makes them: app role, search_path, codecs."""
    async with Database(database).connection() as connection:
        yield connection


@pytest.fixture
async def owner(database: str) -> AsyncIterator[Connection]:
    """The same as superuser and owner of the tables."""
    async with Database(database).connection(role=None) as connection:
        yield connection


@pytest.fixture(scope="module")
def lab(server: PrivateServer) -> Iterator[Lab]:
    """A database for the tests of a module that are not async; they share it, and find what others left."""
    with open_lab(server) as opened:
        yield opened


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[PrivateServer]:
    """A server to stop, start and kill; `dsn` is its database `postledger`, migrated."""
    home = tmp_path / "server"
    home.mkdir()
    own = PrivateServer(home)
    with watched(home):
        await own.start()
        await migrate_template(await own.create_database("postledger"))
        yield own
        await own.stop("immediate")
