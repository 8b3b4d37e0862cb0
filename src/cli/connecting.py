"""From the configuration to a database that is ready for use: the private one, or the one that is named."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ..config import Config
from ..database import Connection, Database, migrate
from ..database.migrate import check_hidden, check_version, installed_version
from ..embedded import running
from ..ledger.sealing import seal_all


@asynccontextmanager
async def opened(config: Config, *, install: bool = False) -> AsyncIterator[Database]:
    """A database with the schema of this version.

    A private one is started, migrated and stopped again. A named one is only looked at; `install` makes the schema
    where there is none yet, so that a newcomer's first `send` needs no other command before it.
    """
    if config.database is None:
        async with running(config.data) as dsn:
            await migrate(dsn, schema=config.schema)
            yield Database(dsn, config.schema)
        return
    database = Database(config.database, config.schema)
    await _prepare(database, install=install)
    yield database


def straight(config: Config, database: Database) -> Database:
    """The server itself, for what needs a session to itself; `database` may be a pooler."""
    return database if config.listen is None else Database(config.listen, config.schema)


@asynccontextmanager
async def connected(config: Config, *, install: bool = False) -> AsyncIterator[Connection]:
    """One connection to such a database, for the commands that ask or change a little."""
    async with opened(config, install=install) as database, database.connection(label="cli") as conn:
        yield conn


@asynccontextmanager
async def appending(config: Config, *, install: bool = False) -> AsyncIterator[Connection]:
    """The same for commands that change something: what they have appended is in a block when they leave."""
    async with connected(config, install=install) as conn:
        try:
            yield conn
        finally:
            if not (conn.is_closed() or conn.is_in_transaction()):
                await seal_all(conn)


async def _prepare(database: Database, *, install: bool) -> None:
    # As the login itself: the role of the app may not exist yet.
    async with database.connection(role=None, label="cli") as conn:
        version = await installed_version(conn)
        if version is None:
            await check_hidden(conn, database.schema)
    if version is None and install:
        version = await migrate(database.dsn, schema=database.schema)
    check_version(version)
