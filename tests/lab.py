"""A database, a connection and a loop for tests that are not async: those that hypothesis runs."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from postledger.database import Connection, Database
from tests.servers import PrivateServer

T = TypeVar("T")


class Lab:
    """`app` is a connection as the program makes them, `owner` one of the superuser."""

    def __init__(self, runner: asyncio.Runner, dsn: str) -> None:
        self.dsn = dsn
        self._runner = runner
        self.app = self.run(self.connect())
        self.owner = self.run(self.connect(role=None))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    async def connect(self, **options: Any) -> Connection:
        return await Database(self.dsn).connect(**options)


@contextmanager
def open_lab(server: PrivateServer) -> Iterator[Lab]:
    with asyncio.Runner() as runner:
        database = server.database()
        dsn = runner.run(database.__aenter__())
        lab = Lab(runner, dsn)
        try:
            yield lab
        finally:
            for conn in (lab.app, lab.owner):
                runner.run(conn.close())
            runner.run(database.__aexit__(None, None, None))
