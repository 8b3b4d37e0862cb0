"""One moment of the database, to read from while everybody else works on."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..database import Blocks, Connection, cursor
from .records import Row

sql = Blocks("postledger.projections", "snapshot.sql")

CHUNK = 1000
"""Rows that a cursor brings at once."""


@asynccontextmanager
async def snapshot(conn: Connection) -> AsyncIterator[None]:
    """Everything read inside is as of one moment; a transition is seen whole or not at all.

    `conn` must be in no transaction.
    """
    async with conn.transaction(isolation="repeatable_read", readonly=True):
        await conn.execute(sql.plan_for_whole_tables)
        yield


async def chunks(conn: Connection, statement: str, *arguments: Any) -> AsyncIterator[Sequence[Row]]:
    """The rows of a statement, so many at once; other statements may run in between."""
    opened = await (await cursor(conn, statement, *arguments))
    while rows := await opened.fetch(CHUNK):
        yield rows
