"""One server: its settings, and what earlier ones left behind."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest

from postledger.embedded import Status, running, server_status
from postledger.embedded.accounts import account_for
from postledger.embedded.server import Server
from tests.embedded.guests import is_stopped, server_pid


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server_encoding", "UTF8"),
        ("data_checksums", "on"),
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("full_page_writes", "on"),
        ("wal_level", "replica"),
        ("max_connections", "200"),
        ("shared_buffers", "256MB"),
        ("max_wal_size", "2GB"),
        ("TimeZone", "UTC"),
        ("listen_addresses", ""),
    ],
)
async def test_settings(plain: asyncpg.Connection, name: str, value: str):
    assert await plain.fetchval(f"SHOW {name}") == value


async def test_text_is_ordered_by_code_point_and_knows_case_outside_ascii(plain: asyncpg.Connection):
    assert await plain.fetchval("SELECT lower('ÄÉΩ')") == "äéω"
    assert await plain.fetchval("SELECT array_agg(t ORDER BY t) FROM unnest('{a,B,é,b}'::text[]) t") == [
        "B",
        "a",
        "b",
        "é",
    ]


async def test_a_failed_statement_leaves_no_values_in_the_log(plain: asyncpg.Connection, plain_home: Path):
    with pytest.raises(asyncpg.UniqueViolationError):
        await plain.execute(
            "CREATE TEMP TABLE t (email text UNIQUE); INSERT INTO t VALUES ('a@b.example'), ('a@b.example')"
        )
    log = (plain_home / "server.log").read_text()
    assert "duplicate key" in log
    assert "a@b.example" not in log


async def test_parallel_queries_work_without_dev_shm(tmp_path: Path):
    settings = {"dynamic_shared_memory_type": "sysv", "debug_parallel_query": "on"}
    async with running(tmp_path / "data", settings=settings) as dsn:
        conn = await asyncpg.connect(dsn)
        assert await conn.fetchval("SELECT count(*) FROM generate_series(1, 1000)") == 1000
        await conn.close()


async def test_the_same_process_may_be_inside_twice(tmp_path: Path):
    async with running(tmp_path) as outer:
        async with running(tmp_path) as inner:
            assert inner == outer
        conn = await asyncpg.connect(outer)
        await conn.close()
    assert is_stopped(tmp_path)


async def test_an_error_inside_passes_and_the_server_stops(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="letter"):
        async with running(tmp_path):
            raise FileNotFoundError("letter.html")
    assert is_stopped(tmp_path)


async def test_a_note_with_the_number_of_a_living_process_is_no_server(tmp_path: Path):
    async with running(tmp_path):
        note = (tmp_path / "pgdata" / "postmaster.pid").read_text()
    with sleeper(tmp_path) as pid:
        stale = "\n".join([str(pid), *note.splitlines()[1:]]) + "\n"
        (tmp_path / "pgdata" / "postmaster.pid").write_text(stale)
        (tmp_path / "pgdata" / ".s.PGSQL.5432.lock").write_text(stale)
        async with running(tmp_path) as dsn:
            conn = await asyncpg.connect(dsn)
            await conn.close()
            assert server_pid(tmp_path) != pid


async def test_an_unreadable_note_is_no_server(tmp_path: Path):
    async with running(tmp_path):
        pass
    (tmp_path / "pgdata" / "postmaster.pid").write_text("")
    async with running(tmp_path) as dsn:
        conn = await asyncpg.connect(dsn)
        await conn.close()


async def test_status(tmp_path: Path):
    data, log = tmp_path / "data", tmp_path / "data" / "server.log"
    assert await server_status(data) == Status(running=False, version=None, log=log)
    assert not data.exists()
    async with running(data):
        assert await server_status(data) == Status(running=True, version="18", log=log)
    assert await server_status(data) == Status(running=False, version="18", log=log)


async def test_a_long_log_is_put_aside(tmp_path: Path):
    with (tmp_path / "server.log").open("w") as log:
        log.truncate(11 << 20)
    async with running(tmp_path):
        assert (tmp_path / "server.log").stat().st_size < 1 << 20
    assert (tmp_path / "server.log.1").stat().st_size == 11 << 20


async def test_start_and_stop_may_be_repeated(tmp_path: Path):
    server = Server.at(tmp_path)
    assert await server.start() == await server.start()
    await server.stop()
    await server.stop()
    assert is_stopped(tmp_path)


@pytest.fixture(scope="module")
def plain_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plain")


@pytest.fixture
async def plain(plain_home: Path):
    """A connection to a server with nobody's settings but ours."""
    async with running(plain_home) as dsn:
        conn = await asyncpg.connect(dsn)
        yield conn
        await conn.close()


@contextmanager
def sleeper(data: Path) -> Iterator[int]:
    """A process of the server's user that is not the server."""
    account = account_for(data / "pgdata")
    other = {} if account.uid == os.geteuid() else {"user": account.uid}
    with subprocess.Popen(["sleep", "600"], **other) as process:
        yield process.pid
        process.kill()
