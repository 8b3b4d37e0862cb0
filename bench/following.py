"""`python -m bench.following`: what sealing costs a drain, and how fast the sealed log is read and counted."""

import argparse
import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import orjson
from attrs import frozen

from bench.run import LEFT, SCRIPTS, Bench, middle, on_a_server
from postledger.database import Connection, Database
from postledger.ledger.sealing import seal_all
from postledger.projections import follow, progress
from postledger.projections.follow import Checkpoint
from postledger.projections.records import Row, read_event

SCRIPTS |= {"unsealed": "bench.unsealed", "uncounted": "bench.uncounted"}
LEFT |= dict.fromkeys(("unsealed", "uncounted"), LEFT["postledger"])
VARIANTS = ("unsealed", "uncounted", "postledger")
UNSEALED = "SELECT postledger.unsealed()"
TICKS = os.sysconf("SC_CLK_TCK")
BEHIND = """
    SELECT postledger.unsealed() OR (SELECT block_no FROM postledger.followers WHERE name = 'progress')
         < (SELECT max(block_no) FROM postledger.blocks)
"""


@frozen
class Drain:
    """Recipients a second until the campaign was completed; processor time of server and workers for each of them."""

    rate: float
    cpu_us: float


def used(pid: int) -> tuple[int, float]:
    """Parent, and seconds of processor time with those of children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), sum(map(int, fields[11:15])) / TICKS


def of_server(dsn: str) -> float:
    """All its processes, those that have ended too."""
    folder = Path(parse_qs(urlsplit(dsn).query)["host"][0])
    postmaster = int((folder / "postmaster.pid").read_text().splitlines()[0])
    total = used(postmaster)[1]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent, seconds = used(int(process.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += seconds if parent == postmaster else 0.0
    return total


async def drain(bench: Bench, name: str, jobs: int, workers: int) -> Drain:
    """What was written down is sealed and counted beforehand; what the drain appends, before its time is taken."""
    dsn = await bench.fresh(name)
    bench.call(name, dsn, "enqueue", str(jobs))
    await catch_up(dsn)
    conn = await asyncpg.connect(dsn)
    await conn.execute("VACUUM ANALYZE")
    await conn.execute("CHECKPOINT")
    with bench.workers(name, dsn, workers) as processes:

        def cpu() -> float:
            return of_server(dsn) + sum(used(process.pid)[1] for process in processes)

        before, began = cpu(), time.perf_counter()
        await until_none(conn, LEFT[name])
        took = time.perf_counter() - began
        if name != "unsealed":
            await until_none(conn, BEHIND if name == "postledger" else UNSEALED)
        spent = cpu() - before
    await conn.close()
    return Drain(jobs / took, spent / jobs * 1e6)


async def until_none(conn: asyncpg.Connection, query: str) -> None:
    while await conn.fetchval(query):  # noqa: ASYNC110 - other processes do the work
        await asyncio.sleep(0.05)


async def catch_up(dsn: str) -> None:
    async with Database(dsn).connection(label="bench") as conn:
        await seal_all(conn)
        while await progress.follow(conn):
            pass


class Reading:
    """A follower that makes of each event its JSON, or its class, and counts them by type."""

    name = "bench"

    def __init__(self, *, classes: bool) -> None:
        self.read = self._class if classes else self._json
        self.counts: Counter[str] = Counter()

    async def apply(self, conn: Connection, events: Sequence[Row]) -> None:
        self.counts.update(map(self.read, events))

    @staticmethod
    def _json(row: Row) -> str:
        body: dict[str, object] = orjson.loads(row["body"])
        return row["type"] if body else "empty"

    @staticmethod
    def _class(row: Row) -> str:
        return type(read_event(row).event).type


async def read_all(conn: Connection) -> int:
    """Pages as they come, not decoded."""
    after, count = Checkpoint(), 0
    while True:
        page = await follow.read_page(conn, after)
        count, after = count + len(page.events), page.checkpoint
        if page.is_last:
            return count


async def follow_all(conn: Connection, *, classes: bool) -> int:
    """Each page, decoded, in a transaction with its checkpoint, from the beginning."""
    await conn.execute("DELETE FROM postledger.followers WHERE name = 'bench'")
    follower = Reading(classes=classes)
    while (page := await follow.step(conn, follower)) and not page.is_last:
        pass
    return follower.counts.total()


async def count_all(conn: Connection) -> int:
    """The one that counts in SQL, from the beginning."""
    await conn.execute("TRUNCATE postledger.progress, postledger.progress_minutes")
    await conn.execute("UPDATE postledger.followers SET block_no = 0, position = 0 WHERE name = 'progress'")
    count = 0
    while got := await progress.follow(conn):
        count += got
    return count


READERS: dict[str, Callable[[Connection], Awaitable[int]]] = {
    "pages read": read_all,
    "followed, as JSON": partial(follow_all, classes=False),
    "followed, as classes": partial(follow_all, classes=True),
    "progress, in SQL": count_all,
}


async def readers(bench: Bench, jobs: int, rounds: int) -> dict[str, list[float]]:
    """Events a second of the log that a drain has left."""
    dsn = await bench.fresh("postledger")
    bench.call("postledger", dsn, "enqueue", str(jobs))
    conn = await asyncpg.connect(dsn)
    with bench.workers("postledger", dsn, 1):
        await until_none(conn, LEFT["postledger"])
        await until_none(conn, BEHIND)
    await conn.execute("VACUUM ANALYZE")
    events = await conn.fetchval("SELECT count(*) FROM postledger.events")
    blocks = await conn.fetchval("SELECT count(*) FROM postledger.blocks")
    print(f"{events:,} events in {blocks:,} blocks", flush=True)
    found: dict[str, list[float]] = {name: [] for name in READERS}
    async with Database(dsn).connection(role=None, label="bench") as own:
        for _ in range(rounds):
            for name, read in READERS.items():
                began = time.perf_counter()
                assert await read(own) == events
                found[name].append(events / (time.perf_counter() - began))
    await conn.close()
    return found


async def sealing(bench: Bench, jobs: int, rounds: int, workers: int) -> None:
    """With the sealer and without, in turn, so that a slow minute does not fall on one alone."""
    found: dict[str, list[Drain]] = {name: [] for name in VARIANTS}
    for number in range(rounds):
        for name in VARIANTS[:: 1 if number % 2 else -1]:
            one = await drain(bench, name, jobs, workers)
            found[name].append(one)
            print(f"  {name:10} {workers} worker(s) {one.rate:10,.0f}/s {one.cpu_us:6.1f} us", flush=True)
    title = f"drain, null://, {workers} worker(s)"
    print(f"| {title} | recipients/s | costs | CPU in us each | costs |\n|---|---|---|---|---|")
    plain = found["unsealed"]
    for name, label in zip(VARIANTS, ("without sealing", "sealed", "sealed and counted"), strict=True):
        slower = statistics.median(a.rate / b.rate for a, b in zip(plain, found[name], strict=True)) - 1
        dearer = statistics.median(b.cpu_us / a.cpu_us for a, b in zip(plain, found[name], strict=True)) - 1
        rates, cpus = [one.rate for one in found[name]], [one.cpu_us for one in found[name]]
        cpu = f"{statistics.median(cpus):.1f} ({min(cpus):.1f}-{max(cpus):.1f})"
        print(f"| {label} | {middle(rates)} | {slower:.1%} | {cpu} | {dearer:.1%} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2], help="of the drains")
    parser.add_argument("--only", choices=("readers", "sealing"))
    options = parser.parse_args()

    async def run(bench: Bench) -> None:
        if options.only != "sealing":
            for name, rates in (await readers(bench, options.jobs, options.rounds)).items():
                print(f"| {name:20} | {middle(rates)} events/s |", flush=True)
        if options.only != "readers":
            for workers in options.workers:
                await sealing(bench, options.jobs, options.rounds, workers)

    on_a_server(run)


if __name__ == "__main__":
    main()
