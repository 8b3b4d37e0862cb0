"""The service as a process of its own, on a fresh database, with a key for whoever measures it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from attrs import frozen

from bench.run import ROOT
from postledger.database import Database, migrate
from postledger.ledger import access

HERE = ("--http", "127.0.0.1:0", "--url", "https://mail.shop.example")
_SERVING = re.compile(r"http://127\.0\.0\.1:\d+")


@frozen
class Service:
    """Where it answers, with which key, as which process."""

    dsn: str
    url: str
    key: str
    pid: int


@asynccontextmanager
async def service(admin: str, name: str, command: str = "serve") -> AsyncIterator[Service]:
    """`postledger serve`, or `up`, on a new database of this name, which is gone afterwards."""
    conn = await asyncpg.connect(admin)
    await conn.execute(f"CREATE DATABASE {name}")
    dsn = urlsplit(admin)._replace(path=f"/{name}").geturl()
    await migrate(dsn)
    async with Database(dsn).connection(label="bench") as app:
        _, key = await access.create(app, access.SCOPES)
    with _running(dsn, command) as (url, pid):
        yield Service(dsn, url, key, pid)
    await conn.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await conn.close()


@contextmanager
def _running(dsn: str, command: str) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "postledger", command, *HERE, "--database", dsn],
                cwd=ROOT,
                stdout=out,
                stderr=out,
            )
        try:
            yield _url(log, process), process.pid
        finally:
            process.terminate()
            process.wait(60)


def _url(log: Path, process: subprocess.Popen[bytes]) -> str:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        if found := _SERVING.search(log.read_text(errors="replace")):
            return found[0]
        time.sleep(0.05)
    raise SystemExit(f"the service did not begin: {log.read_text(errors='replace')[-2000:]}")
