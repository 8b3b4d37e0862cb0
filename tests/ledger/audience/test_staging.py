"""Staging: committed chunks that are counted, and what is left behind by those who died."""

import asyncio
import io
import threading
from collections.abc import AsyncIterator, Iterable, Iterator

import asyncpg
import orjson
import pytest

from postledger.database import Connection, Database
from postledger.errors import ConflictError, DataError, UnavailableError
from postledger.ledger.audience import staging
from postledger.ledger.audience.csv_reader import read_csv
from postledger.ledger.audience.rows import BadRow, Row
from postledger.ledger.audience.staging import CHUNK, Staged, stage
from tests.eventually import eventually
from tests.servers import PrivateServer

WITHIN = 20.0


@pytest.fixture
async def ours(database: str) -> AsyncIterator[Connection]:
    async with Database(database).connection() as connection:
        yield connection


@pytest.fixture
async def watcher(database: str) -> AsyncIterator[Connection]:
    """A session of its own: it sees what is committed, and may end other sessions."""
    async with Database(database).connection(role=None) as connection:
        yield connection


def person(line: int) -> Row:
    return Row(line, f"user{line}@example.com", f"user{line}", None, b"{}")


def people(count: int) -> list[Row]:
    return [person(line) for line in range(2, count + 2)]


class Stalled:
    """Rows that stop coming behind the first chunk, until `go`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = threading.Event()
        self.done = False
        self._error = error

    def __iter__(self) -> Iterator[Row]:
        yield from people(CHUNK)
        self.go.wait(WITHIN)
        self.done = True
        if self._error:
            raise self._error
        yield person(CHUNK + 2)


async def put(conn: Connection, rows: Iterable[Row | BadRow], source: str = "test") -> Staged:
    return await stage(conn, campaign_id=None, source=source, rows=rows)


async def counted(conn: Connection, import_id: int) -> tuple[str, int, int]:
    return tuple(await conn.fetchrow("SELECT state, rows, chunks FROM imports WHERE id = $1", import_id))


async def kept(conn: Connection, import_id: int) -> int:
    return await conn.fetchval("SELECT count(*) FROM import_rows WHERE import_id = $1", import_id)


async def imports(conn: Connection) -> list[int]:
    return [found["id"] for found in await conn.fetch("SELECT id FROM imports ORDER BY id")]


async def first_chunk(conn: Connection) -> int:
    """Wait until a chunk is committed; the import's id."""

    async def committed() -> int:
        found = await conn.fetchval("SELECT id FROM imports WHERE rows = $1", CHUNK)
        assert found is not None
        return found

    return await eventually(committed, within=WITHIN)


async def test_rows_wait_as_they_were_read(ours: Connection) -> None:
    data = orjson.dumps({"City": "Köln", "x": 'a"\\\n'})
    rows = [Row(2, "a@b.de", "7", "Ann", data), BadRow(3, "no address"), Row(4, "c@d.de", "c@d.de", None, b"{}")]
    staged = await stage(ours, campaign_id=5, source="people.csv", rows=rows)
    assert staged == Staged(staged.import_id, rows=3, invalid=1)
    assert await counted(ours, staged.import_id) == ("staged", 3, 1)
    assert await ours.fetchval("SELECT (campaign_id, source) = (5, 'people.csv') FROM imports")
    found = await ours.fetch("SELECT line, key, email, name, data, outcome, reason FROM import_rows ORDER BY line")
    assert [tuple(row) for row in found] == [
        (2, "7", "a@b.de", "Ann", orjson.loads(data), None, None),
        (3, None, None, None, None, "invalid", "no address"),
        (4, "c@d.de", "c@d.de", None, {}, None, None),
    ]


async def test_progress_is_told_of_what_is_committed(ours: Connection) -> None:
    told: list[int] = []
    staged = await stage(ours, campaign_id=None, source="x", rows=people(2 * CHUNK + 1), progress=told.append)
    assert told == [CHUNK, 2 * CHUNK, 2 * CHUNK + 1]
    assert await counted(ours, staged.import_id) == ("staged", 2 * CHUNK + 1, 3)
    assert await kept(ours, staged.import_id) == 2 * CHUNK + 1


@pytest.mark.parametrize("count", [0, CHUNK])
async def test_no_chunk_is_empty(ours: Connection, count: int) -> None:
    staged = await put(ours, people(count))
    assert await counted(ours, staged.import_id) == ("staged", count, count // CHUNK)


async def test_each_chunk_is_committed_with_its_count(ours: Connection, watcher: Connection) -> None:
    rows = Stalled()
    running = asyncio.create_task(put(ours, rows))
    import_id = await first_chunk(watcher)
    assert await counted(watcher, import_id) == ("staging", CHUNK, 1)
    assert await kept(watcher, import_id) == CHUNK
    rows.go.set()
    assert (await running).rows == CHUNK + 1


async def test_what_the_dead_left_is_thrown_away(database: str, ours: Connection, watcher: Connection) -> None:
    rows = Stalled()

    async def doomed() -> None:
        async with Database(database).connection(label="doomed") as connection:
            await put(connection, rows)

    running = asyncio.create_task(doomed())
    left = await first_chunk(watcher)
    await watcher.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'postledger doomed'"
    )
    rows.go.set()
    with pytest.raises(UnavailableError):
        await running
    assert await kept(watcher, left) == CHUNK
    staged = await put(ours, people(1))
    assert await imports(watcher) == [staged.import_id]
    assert await kept(watcher, left) == 0


async def test_what_was_staged_and_never_used_is_thrown_away(database: str, ours: Connection) -> None:
    async with Database(database).connection() as other:
        left = await put(other, people(3))
    staged = await put(ours, people(1))
    assert await imports(ours) == [staged.import_id]
    assert await kept(ours, left.import_id) == 0


async def test_what_another_has_in_hand_is_left_alone(ours: Connection, watcher: Connection) -> None:
    rows = Stalled()
    running = asyncio.create_task(put(ours, rows))
    theirs = await first_chunk(watcher)
    mine = await put(watcher, people(2))
    rows.go.set()
    assert (await running).rows == CHUNK + 1
    again = await put(watcher, people(1))
    assert await imports(watcher) == [theirs, again.import_id], "only one's own forgotten import goes"
    assert await kept(watcher, theirs) == CHUNK + 1
    assert await kept(watcher, mine.import_id) == 0


async def test_what_is_done_stays(ours: Connection, watcher: Connection) -> None:
    done = await put(ours, people(2))
    await ours.execute("UPDATE imports SET state = 'done'")
    await staging.finish(ours, done.import_id)
    assert await kept(ours, done.import_id) == 0
    assert await ours.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    next_one = await put(watcher, people(1))
    assert await imports(watcher) == [done.import_id, next_one.import_id]


async def test_discard_leaves_nothing(ours: Connection) -> None:
    staged = await put(ours, people(2))
    await staging.discard(ours, staged.import_id)
    assert await imports(ours) == []
    assert await kept(ours, staged.import_id) == 0
    assert await ours.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_a_file_that_turns_out_wrong_leaves_nothing(ours: Connection, watcher: Connection) -> None:
    rows = Stalled(DataError("too many quotes"))
    running = asyncio.create_task(put(ours, rows))
    import_id = await first_chunk(watcher)
    rows.go.set()
    with pytest.raises(DataError, match="too many quotes"):
        await running
    assert await imports(watcher) == []
    assert await kept(watcher, import_id) == 0


async def test_cancelling_waits_for_the_thread_that_reads(ours: Connection, watcher: Connection) -> None:
    rows = Stalled()
    running = asyncio.create_task(put(ours, rows))
    left = await first_chunk(watcher)
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, rows.go.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert rows.done
    staged = await put(ours, people(1))
    assert await imports(ours) == [staged.import_id] != [left]


async def test_an_import_that_was_thrown_away_is_not_written_on(ours: Connection, watcher: Connection) -> None:
    rows = Stalled()
    running = asyncio.create_task(put(ours, rows))
    await watcher.execute("DELETE FROM imports WHERE id = $1", await first_chunk(watcher))
    rows.go.set()
    with pytest.raises(ConflictError):
        await running
    assert await watcher.fetchval("SELECT count(*) FROM import_rows") == 0


async def test_one_hostile_row_fails_none_of_its_neighbours(ours: Connection) -> None:
    lines = ["email,name,key,x", *(f"user{n}@example.com,Ann,{n},y" for n in range(199))]
    lines.insert(100, "bad@example.com,A\0\ud800,\udfff\0,\0\\u0000\ud83d")
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    with read_csv(io.BytesIO(content)) as rows:
        staged = await put(ours, rows)
    assert staged == Staged(staged.import_id, 200, 0)
    found = await ours.fetchrow("SELECT name, key, data->>'x' AS x FROM import_rows WHERE line = 101")
    assert tuple(found) == ("A��", "��", "�\\u0000�")


async def test_the_counts_show_that_a_crash_of_the_server_has_emptied_the_rows(
    own_server: PrivateServer,
) -> None:
    async with Database(own_server.dsn).connection() as conn:
        staged = await put(conn, people(10))
    await own_server.kill()
    await own_server.start()
    async with Database(own_server.dsn).connection() as conn:
        assert await counted(conn, staged.import_id) == ("staged", 10, 1)
        assert await kept(conn, staged.import_id) == 0


async def test_the_report_has_what_became_of_each_row(ours: Connection) -> None:
    rows = [*people(5), BadRow(7, "no address")]
    staged = await put(ours, rows)
    await ours.execute("UPDATE import_rows SET outcome = 'duplicate_key', reason = 'twice' WHERE line = 3")
    await ours.execute("UPDATE import_rows SET outcome = 'suppressed' WHERE line = 5")
    counts = {"rows": 6, "accepted": 3, "duplicate_key": 1, "duplicate_address": 0, "invalid": 1, "suppressed": 1}
    report = await staging.read_report(ours, staged.import_id, counts)
    assert report.to_json() == {
        "rows": 6,
        "accepted": 3,
        "duplicate_key": 1,
        "duplicate_address": 0,
        "invalid": 1,
        "suppressed": 1,
        "lines": [
            {"line": 3, "outcome": "duplicate_key", "reason": "twice"},
            {"line": 5, "outcome": "suppressed", "reason": None},
            {"line": 7, "outcome": "invalid", "reason": "no address"},
        ],
        "lines_omitted": 0,
    }


@pytest.mark.parametrize("block", sorted(staging.sql.statements))
async def test_every_block_compiles(ours: asyncpg.Connection, block: str) -> None:
    await ours.prepare(staging.sql.statements[block])
