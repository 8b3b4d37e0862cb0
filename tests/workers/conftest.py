"""Mailings and catchers for the tests of workers."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from postledger.database import Connection, Database
from postledger.demo.behaviours import Choice, accept
from tests.workers.mailing import Inbox, Mailing

MakeInbox = Callable[..., Awaitable[Inbox]]


@pytest.fixture
async def mailing(database: str, app: Connection) -> Mailing:
    """Campaigns and workers on a database of the test's own."""
    return Mailing(Database(database), app)


@pytest.fixture
async def inbox() -> AsyncIterator[MakeInbox]:
    """Starts catchers that stop with the test: `await inbox(behaviour)`."""
    async with AsyncExitStack() as running:

        async def start(behaviour: Choice = accept) -> Inbox:
            return await running.enter_async_context(Inbox(behaviour))

        yield start
