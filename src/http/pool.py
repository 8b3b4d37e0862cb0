"""The service's pool of connections: made as all of ours are, with errors in the words of the error tree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from ..database import Connection, Database, translated
from ..errors import UnavailableError

SIZE = 10
WAIT = 5.0
"""Seconds for a free connection: who waits longer is told to come again."""

ANSWER_WITHIN = 30.0
"""Seconds for a statement that names no time of its own."""


class Pool:
    """Connections for as long as one request needs one; a restart of the server ends none but those in use."""

    def __init__(self, database: Database, *, size: int = SIZE) -> None:
        self.database = database
        self.size = size
        self._pool: asyncpg.Pool | None = None

    async def open(self) -> None:
        """Makes the first connection. Raises UnavailableError or ConfigurationError."""
        with translated(self.database.dsn):
            self._pool = await asyncpg.create_pool(
                connect=self._connect,
                connection_class=asyncpg.Connection,
                reset=_as_it_was,
                min_size=1,
                max_size=self.size,
                max_inactive_connection_lifetime=300.0,
            )

    async def _connect(self, *_: object, **__: object) -> Connection:
        return await self.database.connect(label="http", command_timeout=ANSWER_WITHIN)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in no transaction. Raises UnavailableError where none is free or the server is away."""
        assert self._pool is not None
        with translated(self.database.dsn):
            try:
                conn: Any = await self._pool.acquire(timeout=WAIT)
            except TimeoutError:
                raise UnavailableError(f"no database connection came free within {WAIT:.0f} s: try again") from None
            try:
                yield conn
            finally:
                await self._pool.release(conn)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """The same in a transaction, which commits at the end of the block."""
        async with self.connection() as conn, conn.transaction():
            yield conn

    async def close(self) -> None:
        """Closes them politely, or drops them where that takes long."""
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(2):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


async def _as_it_was(conn: Connection) -> None:
    """Requests change no setting of a session but within their transactions, so there is nothing to put back."""
