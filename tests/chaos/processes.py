"""Processes that are started, killed, stopped and continued, and end with the one who started them."""

import asyncio
import ctypes
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from attrs import define

from postledger.config import redact

HERE = Path(__file__).parent
SAYS_WITHIN = 30.0
ENDS_WITHIN = 30.0
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """Even a stopped process gets this, where the parent was killed before it could clean up."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@define
class Child:
    """One process. `said`: the first line that it printed."""

    name: str
    process: asyncio.subprocess.Process
    said: str = ""

    @classmethod
    async def start(cls, name: str, log: Path, *command: str | Path) -> Self:
        """What it writes to stderr, and to stdout after its first line, goes to `log`."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *map(str, command),
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                preexec_fn=_die_with_parent,
            )
        return cls(name, process)

    async def listen(self) -> str:
        """Its first line."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), SAYS_WITHIN)
        self.said = line.decode().strip()
        if not self.said:
            raise RuntimeError(f"{self.name} ended before it was there: code {await self.process.wait()}")
        return self.said

    @property
    def lives(self) -> bool:
        return self.process.returncode is None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.process.kill()
        await self.process.wait()

    async def end(self) -> int:
        """In order, or by force where it does not end; its exit code."""
        if self.lives:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
        try:
            return await asyncio.wait_for(self.process.wait(), ENDS_WITHIN)
        except TimeoutError:
            await self.kill()
            raise


class Crew:
    """The workers of one database, and the relay that they send through."""

    def __init__(self, dsn: str, folder: Path, *, lease: float = 60.0, concurrency: int = 5) -> None:
        self.dsn = dsn
        self.folder = folder
        self.lease = lease
        self.concurrency = concurrency
        self.children: list[Child] = []
        self.url = ""

    @property
    def caught(self) -> Path:
        """The relay's log: a line for each mail that it has taken."""
        return self.folder / "caught.jsonl"

    @property
    def workers(self) -> list[Child]:
        return [child for child in self.children if child.name == "worker"]

    def worker(self, worker_id: int) -> Child:
        """The process that is this worker."""
        return next(worker for worker in self.workers if int(worker.said) == worker_id)

    async def start_relay(self, slow: float = 0.03) -> None:
        self.caught.touch()
        relay = await self._start("relay", HERE / "relay.py", self.caught, "--slow", str(slow))
        self.url = f"smtp://127.0.0.1:{await relay.listen()}"

    async def start_worker(self) -> Child:
        """One more; it is at work when this returns."""
        options = ("--lease", self.lease, "--concurrency", self.concurrency)
        worker = await self._start("worker", HERE / "worker.py", self.dsn, *map(str, options))
        await worker.listen()
        return worker

    async def start_workers(self, count: int) -> list[Child]:
        return list(await asyncio.gather(*(self.start_worker() for _ in range(count))))

    async def end(self) -> None:
        """Workers first: what they have in hand, the relay still takes."""
        children, self.children = self.children, []
        relays = [child for child in children if child.name == "relay"]
        workers = [child for child in children if child.name != "relay"]
        try:
            await asyncio.gather(*(worker.end() for worker in workers))
        finally:
            await asyncio.gather(*(relay.end() for relay in relays))

    async def _start(self, name: str, *command: str | Path) -> Child:
        child = await Child.start(name, self.folder / f"{name}.log", *command)
        self.children.append(child)
        return child

    def __repr__(self) -> str:
        return f"Crew({redact(self.dsn)})"


@asynccontextmanager
async def crew(dsn: str, folder: Path, *, slow: float = 0.03, **options: float) -> AsyncIterator[Crew]:
    """A relay, and whoever is started; all of them end with the context, whatever happens in it."""
    hired = Crew(dsn, folder, **options)  # type: ignore[arg-type]
    try:
        await hired.start_relay(slow)
        yield hired
    finally:
        await hired.end()
