"""Bringing rows into the staging table, in committed chunks, reading ahead while one is written."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager
from itertools import islice

import structlog
from attrs import define, frozen

from ...database import Blocks, Connection, is_pooled
from ...errors import ConflictError, PostledgerError
from .report import LINES_KEPT, Line, Report
from .rows import BadRow, Row

CHUNK = 10_000
"""Rows in a transaction: about 0.1 s of reading, and as much of writing."""

_COLUMNS = ("import_id", "line", "key", "email", "name", "data", "outcome", "reason")

sql = Blocks("postledger.ledger.audience", "staging.sql")
log = structlog.get_logger(__name__)


@define
class Staged:
    """What waits in import_rows: `rows` of them, `invalid` of which are there for the report alone."""

    import_id: int
    rows: int = 0
    invalid: int = 0


@frozen
class _Chunk:
    """Rows as COPY takes them."""

    records: list[tuple[object, ...]]
    invalid: int


async def stage(
    conn: Connection,
    *,
    campaign_id: int | None,
    source: str,
    rows: Iterable[Row | BadRow],
    progress: Callable[[int], None] | None = None,
) -> Staged:
    """Write `rows` down for `enqueue_import`; `progress` is told how many are committed so far.

    `conn` is in no transaction. Its session holds the import until `finish` or `discard`. Raises what reading `rows`
    raises.
    """
    async with staging(conn, source, campaign_id) as staged, aclosing(_chunks(staged.import_id, rows)) as chunks:
        async for chunk in chunks:
            await _write(conn, staged.import_id, chunk)
            staged.rows += len(chunk.records)
            staged.invalid += chunk.invalid
            if progress:
                progress(staged.rows)
    return staged


@asynccontextmanager
async def staging(conn: Connection, source: str, campaign_id: int | None = None) -> AsyncIterator[Staged]:
    """An import to write rows into, whose counts the block keeps; behind the block it is complete.

    What dead holders have left is thrown away first, and what this very session left; so is this import when the
    block raises a PostledgerError.
    """
    await discard_abandoned(conn)
    staged = Staged(await _open(conn, campaign_id, source))
    try:
        yield staged
    except PostledgerError:
        await discard(conn, staged.import_id)
        raise
    expect(staged.import_id, await conn.fetchval(sql.close_staging, staged.import_id))
    log.info("import staged", import_id=staged.import_id, rows=staged.rows, invalid=staged.invalid)


async def read_report(conn: Connection, import_id: int, counts: Mapping[str, int], unit: str = "line") -> Report:
    """What became of each row, before `finish`: `counts` are enqueue_import's; `unit` is what a row is called."""
    outcomes = {outcome: n for outcome, n in counts.items() if outcome != "rows"}
    all_accepted = counts["accepted"] == counts["rows"]
    return Report.of(outcomes, [] if all_accepted else await read_lines(conn, import_id), unit)


async def read_lines(conn: Connection, import_id: int) -> list[Line]:
    """The first of those that were not taken as they were, in order."""
    return [Line(*line) for line in await conn.fetch(sql.read_lines, import_id, LINES_KEPT)]


async def finish(conn: Connection, import_id: int) -> None:
    """The import is used and reported: its rows go, the record of it stays."""
    await conn.execute(sql.sweep_rows, import_id)
    await _let_go(conn, import_id)


async def discard(conn: Connection, import_id: int) -> None:
    """Throw an import away that will not be used."""
    await conn.execute(sql.discard_import, import_id)
    await _let_go(conn, import_id)


async def discard_abandoned(conn: Connection) -> list[int]:
    """Throw away what the dead have left unfinished; their ids."""
    abandoned = [found["id"] for found in await conn.fetch(sql.discard_abandoned)]
    if abandoned:
        log.warning("unfinished imports thrown away", import_ids=abandoned)
    return abandoned


async def _open(conn: Connection, campaign_id: int | None, source: str) -> int:
    # Nobody sees the row before it is held: the lock is the session's, so that it outlives this transaction.
    async with conn.transaction():
        import_id: int = await conn.fetchval(sql.open_import, campaign_id, source, is_pooled(conn))
        if not is_pooled(conn):
            await conn.execute(sql.hold_import, import_id)
    return import_id


async def _let_go(conn: Connection, import_id: int) -> None:
    if not is_pooled(conn):
        await conn.execute(sql.drop_hold, import_id)


async def _write(conn: Connection, import_id: int, chunk: _Chunk) -> None:
    # Count and rows are committed together; a crash of the server empties import_rows, and then they differ.
    async with conn.transaction():
        await conn.copy_records_to_table("import_rows", records=chunk.records, columns=_COLUMNS)
        expect(import_id, await conn.fetchval(sql.count_chunk, import_id, len(chunk.records)))


def expect(import_id: int, found: int | None) -> None:
    """Raises ConflictError where a statement did not find the import any more."""
    if found is None:
        raise ConflictError(f"import {import_id} was thrown away by somebody else meanwhile: start it again")


async def _chunks(import_id: int, rows: Iterable[Row | BadRow]) -> AsyncGenerator[_Chunk, None]:
    """Chunks, each read in a thread while the one before it is in use; none is empty."""
    source = iter(rows)
    reading = asyncio.ensure_future(asyncio.to_thread(_take, import_id, source))
    try:
        while (chunk := await asyncio.shield(reading)).records:
            reading = asyncio.ensure_future(asyncio.to_thread(_take, import_id, source))
            yield chunk
    finally:
        # A thread cannot be stopped, and the caller is about to close the file it reads.
        await asyncio.gather(reading, return_exceptions=True)


def _take(import_id: int, source: Iterator[Row | BadRow]) -> _Chunk:
    records: list[tuple[object, ...]] = []
    invalid = 0
    for row in islice(source, CHUNK):
        if isinstance(row, BadRow):
            invalid += 1
            records.append((import_id, row.line, None, None, None, None, row.outcome, row.reason))
        else:
            records.append((import_id, row.line, row.key, row.email, row.name, row.data, None, None))
    return _Chunk(records, invalid)
