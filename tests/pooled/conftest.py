"""Tests behind a pgbouncer: where none is installed they are skipped one by one, by name and with the remedy."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from postledger.database import Connection, Database, prepare_login
from tests.cli.conftest import desk
from tests.pooled.pooler import LOGIN, PGBOUNCER, Pooler, pooler
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing

__all__ = ["desk"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """pytest hands over the tests of all folders."""
    if not PGBOUNCER.exists():
        for item in items:
            if item.path.is_relative_to(Path(__file__).parent):
                item.add_marker(pytest.mark.skip(reason="no pgbouncer here: apt-get install pgbouncer"))


@pytest.fixture
async def logins(owner: Connection) -> None:
    """Roles belong to the whole server, so one test's are the next one's."""
    for name in (LOGIN, "stranger"):
        if not await owner.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", name):
            await owner.execute(f"CREATE ROLE {name} LOGIN")


@pytest.fixture
async def bouncer(server: PrivateServer, logins: None) -> AsyncIterator[Pooler]:
    """One that all tests may use."""
    async with pooler(server) as running:
        yield running


@pytest.fixture
async def pooled(bouncer: Pooler, database: str) -> Database:
    """The test's database, through the pooler, with a login made for it."""
    await prepare_login(Database(database), LOGIN)
    return Database(bouncer.dsn(database))


@pytest.fixture
async def mailing(pooled: Database, app: Connection) -> Mailing:
    """Workers go through the pooler, the test's own commands do not."""
    return Mailing(pooled, app)
