"""People from a query on the user's own tables: one statement with the login's rights; no row passes through here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from attrs import frozen

from ...database import Blocks, Connection, fetch_one
from ...database.connect import APP_ROLE, search_path
from ...errors import DataError
from . import staging
from .header import Columns, read_titles
from .staging import Staged

sql = Blocks("postledger.ledger.audience", "query.sql")

# Its arguments are a name and a value each, and a function takes at most a hundred.
_PAIRS = 50
# What says that the server, and not the query, is at fault.
_SERVER = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
)

_NO_QUERY = (asyncpg.PostgresSyntaxError, asyncpg.FeatureNotSupportedError, asyncpg.ReadOnlySQLTransactionError)


@frozen
class Query:
    """A query that was looked at and not yet run: which columns it has, and those that are kept as text."""

    text: str
    columns: Columns
    exact: frozenset[int]
    """Decimals, which JSON would show as 12.5 where the table says 12.50."""


async def look_at(conn: Connection, text: str) -> Query:
    """`conn` is one of `Database.connect(own=True)`. Raises DataError with what the server says of the query."""
    text = text.strip().rstrip(";")
    await conn.execute(sql.be_the_login)
    with _told():
        statement = await conn.prepare(sql.describe.format(query=text))
    if statement.get_parameters():
        raise DataError("--query has parameters ($1), and nobody to give them: write the values into it")
    found = statement.get_attributes()
    columns = read_titles([attribute.name for attribute in found], "--query")
    return Query(text, columns, frozenset(n for n, attribute in enumerate(found) if attribute.type.name == "numeric"))


async def stage(conn: Connection, own: Connection, query: Query, *, schema: str) -> Staged:
    """Runs the query and writes its rows down for `enqueue_import`; `line` is the number of the row, from 1.

    `conn` holds the import, as in `staging.stage`; `own` is the session of `look_at`. In a read-only transaction of the
    login the rows go to a temporary table, which is all that such a transaction may write to, whatever functions the
    query calls; from there the app's role takes them. Raises DataError with what the server says of the query.
    """
    async with staging.staging(conn, "query") as staged:
        with _told():
            await own.execute(sql.make_shelf)
            await own.execute(sql.open_shelf)
            async with own.transaction(isolation="read_committed", readonly=True):
                # Prepared, also where there are no titles to give: only so it stays a single statement.
                titles = [list(query.columns.data)] if query.columns.data else []
                await own.fetch(_fill(query), *titles)
        async with own.transaction(isolation="read_committed"):
            await own.execute(sql.act, APP_ROLE, search_path(schema))
            await own.execute(sql.take, staged.import_id)
            staged.rows, staged.invalid = await fetch_one(own, sql.count_taken, staged.import_id)
            staging.expect(staged.import_id, await own.fetchval(staging.sql.count_chunk, staged.import_id, staged.rows))
    return staged


def _fill(query: Query) -> str:
    columns = query.columns
    return sql.fill.format(
        email=_text(columns.email),
        key=_text(columns.key),
        name=_text(columns.name),
        data=_data(query),
        query=query.text,
        columns=", ".join(_column(n) for n in range(columns.width)),
    )


def _column(n: int) -> str:
    """By its place: two may have the same name, and any name may need quotes."""
    return f"c{n}"


def _text(n: int | None) -> str:
    return "NULL" if n is None else f"q.{_column(n)}::text"


def _data(query: Query) -> str:
    """A JSON object of all other columns, whose titles are the elements of $1."""
    values = [_text(n) if n in query.exact else f"q.{_column(n)}" for n in query.columns.data.values()]
    pairs = [f"($1::text[])[{n}], {value}" for n, value in enumerate(values, 1)]
    objects = [f"jsonb_build_object({', '.join(part)})" for part in _parts(pairs)]
    return " || ".join(objects) or "'{}'::jsonb"


def _parts(pairs: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(pairs), _PAIRS):
        yield pairs[start : start + _PAIRS]


@contextmanager
def _told() -> Iterator[None]:
    """The server's own words, in one line."""
    try:
        yield
    except _SERVER:
        raise
    except asyncpg.PostgresError as error:
        words = ". ".join(part.rstrip(".") for part in (str(error).splitlines()[0], error.detail, error.hint) if part)
        remedy = " (it must be one SELECT, which only reads)" if isinstance(error, _NO_QUERY) else ""
        raise DataError(f"--query: {words}{remedy}") from error
