"""`make bench`: the contenders in turn on one private server; a table of medians, and ratios of the same run."""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import asyncpg
import structlog

from postledger.embedded.server import Server

T = TypeVar("T")

ROOT = Path(__file__).parent.parent
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "4GB",
    "max_connections": "200",
    "shared_preload_libraries": "pg_stat_statements",
    "pg_stat_statements.track": "none",
}
LEFT = {
    "plain": "SELECT count(*) FROM mails WHERE status IN ('pending', 'sending')",
    "pgqueuer": "SELECT count(*) FROM pgqueuer",
    "postledger": "SELECT count(*) FROM postledger.campaigns WHERE status = 'sending'",
}
SCRIPTS = {"plain": "bench.plain", "pgqueuer": "bench.pgqueuer_peer", "postledger": "bench.postledger_peer"}


class Bench:
    """One server, a fresh database for each measurement."""

    def __init__(self, admin: str) -> None:
        self.admin = admin
        self.number = 0

    async def fresh(self, name: str) -> str:
        self.number += 1
        database = f"bench_{self.number}"
        conn = await asyncpg.connect(self.admin)
        await conn.execute(f"CREATE DATABASE {database}")
        await conn.close()
        dsn = urlsplit(self.admin)._replace(path=f"/{database}").geturl()
        self.call(name, dsn, "init")
        return dsn

    def call(self, name: str, dsn: str, *arguments: str) -> str:
        done = subprocess.run(
            self.command(name, *arguments), env=environment(dsn), cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{name} {arguments}: {done.stderr[-2000:]}")
        return done.stdout

    def command(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", SCRIPTS[name], *arguments]

    @contextmanager
    def workers(self, name: str, dsn: str, count: int, *, wake: bool = False) -> Iterator[list[subprocess.Popen[str]]]:
        processes = [
            subprocess.Popen(
                self.command(name, "work"),
                env=environment(dsn, wake=wake),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            for _ in range(count)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                while (line := process.stdout.readline()) and not line.startswith("S"):
                    pass
            yield processes
        finally:
            for process in processes:
                process.kill()
                process.wait()

    async def drain(self, name: str, jobs: int, workers: int) -> dict[str, float]:
        """Jobs a second from the workers' start until the contender's own tables say that none is left."""
        dsn = await self.fresh(name)
        enqueued = float(self.call(name, dsn, "enqueue", str(jobs)).split("T ")[1])
        conn = await asyncpg.connect(dsn)
        await conn.execute("VACUUM ANALYZE")
        await conn.execute("CHECKPOINT")
        with self.workers(name, dsn, workers) as processes:
            began = time.perf_counter()
            while await conn.fetchval(LEFT[name]):  # noqa: ASYNC110 - other processes do the work
                await asyncio.sleep(0.02)
            took = time.perf_counter() - began
            memory = max(peak_memory(process.pid) for process in processes)
        await conn.close()
        return {"drain": jobs / took, "enqueue": jobs / enqueued, "memory": memory}

    async def wake(self, name: str, count: int) -> list[float]:
        """Milliseconds from just before the commit of a single job to its handler's start, worker idle."""
        dsn = await self.fresh(name)
        with self.workers(name, dsn, 1, wake=True) as (worker,):
            await asyncio.sleep(3)
            sent = moments(self.call(name, dsn, "wake", str(count)), "E")
            await asyncio.sleep(6 if name == "plain" else 1)
            worker.kill()
            seen = moments(worker.stdout.read() if worker.stdout else "", "W")
        return sorted((seen[job] - at) / 1e6 for job, at in sent.items() if job in seen)

    async def idle(self, name: str) -> float:
        """Statements a minute of one idle worker, all its connections, 15 s after its start."""
        dsn = await self.fresh(name)
        conn = await asyncpg.connect(dsn)
        await conn.execute("CREATE EXTENSION pg_stat_statements")
        database = await conn.fetchval("SELECT current_database()")
        await conn.execute(f"ALTER DATABASE {database} SET pg_stat_statements.track = 'top'")
        with self.workers(name, dsn, 1):
            await asyncio.sleep(15)
            await conn.execute("SELECT pg_stat_statements_reset()")
            await asyncio.sleep(60)
            calls = await conn.fetchval(
                "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid "
                "WHERE d.datname = current_database() AND query NOT LIKE '%pg_stat_statements%'"
            )
        await conn.close()
        return float(calls)


def environment(dsn: str, *, wake: bool = False) -> dict[str, str]:
    return {**os.environ, "BENCH_DSN": dsn, "BENCH_WAKE": "1" if wake else "0"}


def moments(output: str, mark: str) -> dict[int, int]:
    lines = (line.split() for line in output.splitlines() if line.startswith(mark + " "))
    found: dict[int, int] = {}
    for _, job, at in lines:
        found.setdefault(int(job), int(at))
    return found


def peak_memory(pid: int) -> float:
    """MB, the most this process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def middle(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}-{max(values):,.0f})"


async def measure(arguments: argparse.Namespace, names: list[str], bench: Bench) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}

    def note(name: str, figure: str, value: float) -> None:
        found[name].setdefault(figure, []).append(value)
        print(f"  {name:10} {figure:16} {value:12,.1f}", flush=True)

    for _ in range(arguments.rounds):  # in rounds, so that a slow minute of the machine does not fall on one alone
        for name in names:
            jobs = min(arguments.jobs, 20_000) if name == "plain" else arguments.jobs
            for workers in (1, 2):
                figures = await bench.drain(name, jobs, workers)
                note(name, f"drain {workers}", figures["drain"])
                if workers == 1:
                    note(name, "enqueue", figures["enqueue"])
                    note(name, "worker MB", figures["memory"])
    if not arguments.drain_only:
        for name in names:
            times = await bench.wake(name, 200)
            for label, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
                note(name, f"wake {label} ms", times[int(len(times) * share)])
            note(name, "idle a minute", await bench.idle(name))
    return found


def table(found: dict[str, dict[str, list[float]]]) -> str:
    figures = [*dict.fromkeys(figure for one in found.values() for figure in one)]
    lines = [f"| {'':16} | " + " | ".join(found) + " |", "|---" * (len(found) + 1) + "|"]
    for figure in figures:
        cells = [middle(one[figure]) if figure in one else "" for one in found.values()]
        lines.append(f"| {figure:16} | " + " | ".join(cells) + " |")
    ours = found["postledger"]
    for name, one in found.items():
        if name != "postledger":
            for figure in ("drain 1", "drain 2"):
                ratio = statistics.median(ours[figure]) / statistics.median(one[figure])
                lines.append(f"| {figure}: postledger / {name} | {ratio:.1f} |")
    return "\n".join(lines)


def on_a_server(work: Callable[[Bench], Coroutine[None, None, T]]) -> T:
    """Runs it with a private server that is gone afterwards."""

    async def run(folder: Path) -> T:
        server = Server.at(folder, settings=SETTINGS)
        bench = Bench(await server.start())
        try:
            return await work(bench)
        finally:
            await server.stop("immediate")

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(prefix="postledger-bench-") as name:
        Path(name).chmod(0o755)
        return asyncio.run(run(Path(name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=200_000, help="recipients in a drain (the plain worker: at most 20,000)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--contenders", default="plain,pgqueuer,postledger")
    parser.add_argument("--drain-only", action="store_true", help="neither pickup nor idle statements")
    parser.add_argument("--json", type=Path, help="write every figure there")
    arguments = parser.parse_args()
    names = [name for name in arguments.contenders.split(",") if name != "pgqueuer" or find_spec("pgqueuer")]

    found = on_a_server(lambda bench: measure(arguments, names, bench))
    print("\n" + table(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
