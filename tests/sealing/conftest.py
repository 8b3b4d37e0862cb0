"""A server that takes prepared transactions, and a follower that writes down what it gets."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from postledger.database import Connection, Database
from tests.lab import Lab, open_lab
from tests.sealing.log import Log, make_seen
from tests.servers import TEMPLATE, PrivateServer, migrate_template, watched

PREPARES = {"max_prepared_transactions": "20"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateServer]:
    """Instead of the one that all other tests share."""
    home = tmp_path_factory.mktemp("sealing")
    own = PrivateServer(home, PREPARES)
    with watched(home):
        asyncio.run(_start(own))
        yield own
        asyncio.run(own.stop("immediate"))


async def _start(server: PrivateServer) -> None:
    await server.start()
    await migrate_template(await server.create_database(TEMPLATE))


@pytest.fixture
async def own_server(tmp_path: Path) -> AsyncIterator[PrivateServer]:
    """To be killed; it takes prepared transactions, too."""
    home = tmp_path / "server"
    home.mkdir()
    own = PrivateServer(home, PREPARES)
    with watched(home):
        await own.start()
        await migrate_template(await own.create_database("postledger"))
        yield own
        await own.stop("immediate")


@pytest.fixture(scope="module")
def lab(server: PrivateServer) -> Iterator[Lab]:
    with open_lab(server) as opened:
        opened.run(make_seen(opened.owner))
        yield opened


@pytest.fixture
async def log(database: str, app: Connection, owner: Connection) -> AsyncIterator[Log]:
    """A log of the test's own; what the installation wrote is sealed."""
    await make_seen(owner)
    opened = Log(Database(database), app)
    await opened.seal()
    yield opened
    await opened.close()
