"""Servers and subscribers killed at random while the log grows: nobody misses an event, nobody gets one twice."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from attrs import define

from postledger.database import Connection, Database
from postledger.ledger import access
from postledger.ledger.sealing import seal_all
from postledger.projections.follow import Checkpoint
from tests.campaigns import draft, enqueue, people
from tests.eventually import eventually

WITHIN = 60.0
KILLS = 2
"""Of the server, and as many of a subscriber: each costs the start of a Python; six were seen to make no difference."""
SUBSCRIBER = Path(__file__).with_name("subscriber.py")


@define
class Process:
    """A program that is killed and begun again."""

    command: list[str]
    log: Path
    running: asyncio.subprocess.Process | None = None

    async def begin(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTLEDGER_")}
        with self.log.open("ab") as out:
            self.running = await asyncio.create_subprocess_exec(
                *self.command, stdout=out, stderr=out, env={**kept, "PYTHONPATH": str(SUBSCRIBER.parents[3])}
            )

    async def kill(self) -> None:
        assert self.running is not None
        self.running.send_signal(signal.SIGKILL)
        await self.running.wait()


@asynccontextmanager
async def begun(command: list[str], log: Path) -> AsyncIterator[Process]:
    process = Process(command, log)
    await process.begin()
    try:
        yield process
    finally:
        await process.kill()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def answers(url: str) -> None:
    """Raises AssertionError until somebody answers there."""
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(f"{url}/healthz") as response:
                assert response.status == 200
        except aiohttp.ClientError as error:
            raise AssertionError(str(error)) from error


async def write(dsn: str, campaign: int, stop: asyncio.Event) -> None:
    """Transactions of all sizes, some undone, some open while others commit; sealed as they come."""
    database = Database(dsn)
    async with database.connection() as one, database.connection() as other, database.connection() as sealer:
        number = 1
        while not stop.is_set():
            slow = one.transaction()
            await slow.start()
            await enqueue(one, campaign, people(random.randint(1, 3), first=number))
            await enqueue(other, await draft(other, f"other {number}"), people(random.randint(1, 40), first=number))
            await seal_all(sealer)
            await (slow.commit() if random.random() < 0.8 else slow.rollback())
            await seal_all(sealer)
            number += 50
            await asyncio.sleep(0)


async def test_nothing_is_missed_and_nothing_comes_twice(db: Connection, database: str, tmp_path: Path) -> None:
    campaign = await draft(db)
    _, key = await access.create(db, access.SCOPES)
    url = f"http://127.0.0.1:{(port := free_port())}"
    serve = [sys.executable, "-m", "postledger", "serve", "--database", database, "--http", f"127.0.0.1:{port}"]
    notes = [tmp_path / "first", tmp_path / "second"]
    for note in notes:
        note.touch()
    after = Checkpoint().encode()
    commands = [[sys.executable, str(SUBSCRIBER), url, key, str(note), after] for note in notes]
    stop = asyncio.Event()
    async with (
        begun(serve, tmp_path / "serve.log") as server,
        begun(commands[0], tmp_path / "first.log") as first,
        begun(commands[1], tmp_path / "second.log"),
    ):
        await eventually(lambda: answers(url), within=WITHIN)
        writing = asyncio.ensure_future(write(database, campaign, stop))
        for _ in range(KILLS):
            for process in (server, first):
                before = [len(seen(note)) for note in notes]
                await eventually(lambda told=before: growing(notes, told), within=WITHIN)
                await process.kill()
                await process.begin()
        stop.set()
        await writing
        await seal_all(db)
        rows = await db.fetch("SELECT position FROM read_blocks(0::smallint, 0, 0, 10000000)")
        wanted = [row["position"] for row in rows]
        for note in notes:
            await eventually(lambda path=note: whole(path, wanted), within=WITHIN)
    for note in notes:
        assert seen(note) == wanted


def seen(path: Path) -> list[int]:
    content = path.read_bytes()
    return [int(line.split()[0]) for line in content[: content.rfind(b"\n") + 1].splitlines()]


def growing(notes: list[Path], before: list[int]) -> None:
    assert all(len(seen(note)) > count for note, count in zip(notes, before, strict=True))


def whole(path: Path, wanted: list[int]) -> None:
    assert len(seen(path)) >= len(wanted)
