"""Who is to get a mail, as the command line says it: a file, a query, a list; each knows how it is staged."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import ClassVar, Protocol

from attrs import frozen

from ..database import Connection, Database
from ..errors import UsageError
from ..ledger import contacts
from ..ledger.audience import query, staging
from ..ledger.audience.csv_reader import CsvReader, read_csv
from ..ledger.audience.header import Columns
from ..ledger.audience.staging import Staged

Check = Callable[[Columns, str], None]
"""Raises DataError where the columns of something (its name) are of no use."""

Progress = Callable[[int], None]


class People(Protocol):
    """`name` is what messages call them, `unit` what their report calls a row."""

    unit: ClassVar[str]

    @property
    def name(self) -> str: ...

    async def stage(self, conn: Connection, server: Database, check: Check, progress: Progress) -> Staged:
        """Writes them down for `enqueue_import`; `conn` holds the import, `server` is no pooler."""
        ...


@frozen
class FromFile:
    """The rows of a CSV file, whose columns were checked when it was opened."""

    reader: CsvReader
    name: str
    unit: ClassVar[str] = "line"

    async def stage(self, conn: Connection, server: Database, check: Check, progress: Progress) -> Staged:
        """In committed chunks."""
        return await staging.stage(conn, campaign_id=None, source=self.name, rows=self.reader, progress=progress)


@frozen
class FromQuery:
    """What a SELECT finds in the same database, with the login's own rights."""

    text: str
    unit: ClassVar[str] = "row"

    @property
    def name(self) -> str:
        return "the query"

    async def stage(self, conn: Connection, server: Database, check: Check, progress: Progress) -> Staged:
        """Looked at first: what is wrong with its columns is found before anything is written."""
        async with server.connection(role=None, own=True, direct=True, label="query") as own:
            found = await query.look_at(own, self.text)
            check(found.columns, "--query")
            return await query.stage(conn, own, found, schema=server.schema)


@frozen
class FromList:
    """Who is on a list of contacts."""

    list: str
    unit: ClassVar[str] = "row"

    @property
    def name(self) -> str:
        return f"the list {self.list}"

    async def stage(self, conn: Connection, server: Database, check: Check, progress: Progress) -> Staged:
        """What its people know differs from one to the next: the letter is checked against all of them later."""
        return await contacts.stage(conn, await contacts.find_list(conn, self.list), self.list)


def people_of(to: str | None, query: str | None, list_: str | None, *, check: Check, files: ExitStack) -> People:
    """The one that was given. Raises UsageError, and DataError for a file that is of no use."""
    given = [flag for flag, value in (("--to", to), ("--query", query), ("--list", list_)) if value is not None]
    if len(given) != 1:
        raise UsageError(f"who is to get it? one of --to FILE, --query SQL and --list NAME, not {_both(given)}")
    if to is not None:
        name = "standard input" if to == "-" else to
        reader = files.enter_context(read_csv(sys.stdin.buffer if to == "-" else to, name=name))
        check(reader.columns, name)
        return FromFile(reader, name)
    return FromQuery(query) if query is not None else FromList(list_ or "")


def _both(given: list[str]) -> str:
    return " and ".join(given) or "none of them"
