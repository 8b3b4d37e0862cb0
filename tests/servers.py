"""The PostgreSQL servers and databases that tests use."""

import asyncio
import itertools
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from postledger.embedded.lock import is_free, until
from postledger.embedded.postmaster import read_postmaster
from postledger.embedded.server import Mode, Server

# Speed for tests alone: what these servers hold may be lost with the machine.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "on",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "autovacuum_naptime": "10s",
}
ODD = {"default_transaction_isolation": "serializable", "timezone": "Pacific/Chatham"}
"""Defaults of somebody else's server, which must make no difference; on 15 everything is tested under them."""

TEMPLATE = "template_postledger"


async def migrate_template(dsn: str) -> None:
    """Bring the schema into a fresh database; the session's template is made by this once."""
    if find_spec("postledger.database") is None:
        return
    await import_module("postledger.database").migrate(dsn, schema="postledger")


def installation() -> Path | None:
    """The bin folder that POSTLEDGER_TEST_PG names (15: Debian's); None is the embedded 18."""
    version = os.environ.get("POSTLEDGER_TEST_PG", "")
    return Path(f"/usr/lib/postgresql/{version}/bin") if version not in ("", "18") else None


class PrivateServer:
    """A server of the tests' own, to create databases on, to stop, start and kill."""

    def __init__(self, home: Path, settings: Mapping[str, str] | None = None, **more: str) -> None:
        odd = {} if installation() is None else ODD
        self._server = Server.at(home, installation(), SETTINGS | odd | dict(settings or {}) | more)
        self._numbers = itertools.count(1)
        self.admin_dsn = ""
        self.dsn = ""
        """The database `postledger` on it, for tests that have the server to themselves."""

    @property
    def bin(self) -> Path:
        """The folder of its programs."""
        return self._server.bin

    @property
    def pid(self) -> int:
        note = read_postmaster(self._server.pgdata)
        assert note is not None
        return note.pid

    async def start(self) -> None:
        self.admin_dsn = await self._server.start()
        self.dsn = self.dsn_of("postledger")

    async def stop(self, mode: Mode = "fast") -> None:
        await self._server.stop(mode)

    async def kill(self) -> None:
        """SIGKILL, as the machine's out-of-memory killer does it; returns when the last backend is gone."""
        os.kill(self.pid, signal.SIGKILL)
        await until(lambda: is_free(self._server.lock))

    def dsn_of(self, database: str) -> str:
        return urlsplit(self.admin_dsn)._replace(path=f"/{database}").geturl()

    async def execute(self, statement: str) -> None:
        conn = await asyncpg.connect(self.admin_dsn)
        try:
            await conn.execute(statement)
        finally:
            await conn.close()

    async def create_database(self, name: str) -> str:
        """An empty database."""
        await self.execute(f"CREATE DATABASE {name}")
        return self.dsn_of(name)

    @asynccontextmanager
    async def database(self, template: str = TEMPLATE) -> AsyncIterator[str]:
        """The DSN of a copy of the template that lives as long as the context."""
        name = f"test_{next(self._numbers)}"
        await self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            yield self.dsn_of(name)
        finally:
            await self.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def watched(home: Path) -> Iterator[None]:
    """Stop the server even when the test run is killed: the end of our pipe wakes a shell that does it."""
    script = 'read -r _; read -r pid < "$1" && kill -INT "$pid"'
    note = home / "pgdata" / "postmaster.pid"
    with subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", note],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as watchman:
        try:
            yield
        finally:
            watchman.kill()


@contextmanager
def session_server(home: Path) -> Iterator[PrivateServer]:
    """A server with the migrated template; sync, since it outlives every test's loop."""
    server = PrivateServer(home)
    with watched(home):
        asyncio.run(_start_with_template(server))
        try:
            yield server
        finally:
            asyncio.run(server.stop("immediate"))


async def _start_with_template(server: PrivateServer) -> None:
    await server.start()
    await migrate_template(await server.create_database(TEMPLATE))
