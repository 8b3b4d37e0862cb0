"""Tests behind a pgbouncer: they run where it is installed, as those on PostgreSQL 15 do."""

from collections.abc import AsyncIterator

import pytest

from postledger.database import Connection, Database, prepare_login
from tests.cli.conftest import desk
from tests.pooled.pooler import LOGIN, PGBOUNCER, Pooler, pooler
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing

__all__ = ["desk"]

if not PGBOUNCER.exists():
    collect_ignore_glob = ["test_*.py"]


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
