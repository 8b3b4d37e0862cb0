"""A standing campaign, and applications: logins of their own that may call enqueue() and nothing else."""

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import asyncpg
import pytest

from postledger.database import Connection
from tests import campaigns
from tests.servers import PrivateServer

Application = Callable[[], Awaitable[asyncpg.Connection]]

_NUMBERS = itertools.count(1)


async def standing(conn: Connection, name: str = "welcome") -> int:
    """A standing campaign that is being sent."""
    campaign = await campaigns.draft(conn, name, kind="standing")
    await campaigns.change(conn, campaign, "Started")
    return campaign


@pytest.fixture
async def welcome(app: Connection) -> int:
    return await standing(app)


@pytest.fixture
async def login(server: PrivateServer) -> AsyncIterator[str]:
    """A login that has what the page docs/transactional.md gives to an application, and no more."""
    name = f"shop_{next(_NUMBERS)}"
    await server.execute(f"CREATE ROLE {name} LOGIN IN ROLE postledger_enqueue")
    yield name
    await server.execute(f"DROP ROLE {name}")


@pytest.fixture
async def application(database: str, login: str) -> AsyncIterator[Application]:
    """Opens connections of that login."""
    opened: list[asyncpg.Connection] = []

    async def connect() -> asyncpg.Connection:
        # The server knows its clients by their socket: whoever may reach it is let in under any name.
        host = urlsplit(database).query
        conn = await asyncpg.connect(f"postgresql://{login}@{urlsplit(database).path}?{host}")
        opened.append(conn)
        return conn

    yield connect
    for conn in opened:
        await conn.close()
