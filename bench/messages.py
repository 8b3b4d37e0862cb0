"""`python -m bench.messages`: POST /v1/messages beside a bare handler that does one INSERT, at 50 callers."""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
from attrs import frozen

from bench import bare
from bench.callers import Asked, ask, request
from bench.run import ROOT, Bench, on_a_server
from bench.service import service
from postledger.database import Database
from postledger.ledger import campaigns, senders
from postledger.ledger.campaigns import Settings, Source

CONCURRENCY = 50
LEAVE_OUT = 1.0
"""Seconds at the beginning, in which connections are opened and statements planned."""


@frozen
class Line:
    """One way to take a message."""

    way: str
    asked: Asked
    written: int

    def __str__(self) -> str:
        waits = " | ".join(f"{self.asked.wait(share):6.1f}" for share in (0.5, 0.99))
        return f"| {self.way:22} | {self.asked.rate:7,.0f} | {waits} | {self.asked.wrong:3} |"


HEAD = "| way | messages/s | p50 ms | p99 ms | not 202 |\n" + "|---" * 5 + "|"


def bodies(**more: object) -> Callable[[], bytes]:
    numbers = count(1)

    def make() -> bytes:
        number = next(numbers)
        person = {"email": f"p{number}@mail{number % 100}.example", "data": {"town": "Ulm", "number": number}}
        return json.dumps({**person, **more}).encode()

    return make


async def through(url: str, key: str, body: Callable[[], bytes], seconds: float, concurrency: int) -> Asked:
    return await ask(
        url,
        lambda: request(url, "/v1/messages", key, body()),
        status=b"202",
        concurrency=concurrency,
        seconds=seconds,
        leave_out=LEAVE_OUT,
    )


@contextmanager
def bare_handler(dsn: str) -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-m", "bench.bare", dsn], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


async def measure_bare(bench: Bench, number: int, seconds: float, concurrency: int) -> Line:
    admin = await asyncpg.connect(bench.admin)
    await admin.execute(f"CREATE DATABASE bare_{number}")
    dsn = urlsplit(bench.admin)._replace(path=f"/bare_{number}").geturl()
    conn = await asyncpg.connect(dsn)
    await conn.execute(bare.TABLE)
    with bare_handler(dsn) as url:
        asked = await through(url, "none", bodies(), seconds, concurrency)
    written = await conn.fetchval("SELECT count(*) FROM mails")
    await conn.close()
    await admin.execute(f"DROP DATABASE bare_{number} WITH (FORCE)")
    await admin.close()
    return Line("bare INSERT", asked, written)


async def standing(dsn: str) -> None:
    """A campaign that takes messages."""
    async with Database(dsn).connection(label="bench") as conn, conn.transaction():
        sender = await senders.keep(conn, "null://")
        settings = Settings("welcome", "hello@shop.example", sender_id=sender, kind="standing")
        campaign = await campaigns.draft(conn, settings, Source("Welcome", "<p>Welcome to {{ town }}</p>", None))
        await campaigns.change(conn, campaign, "Started")


async def measure_ours(bench: Bench, number: int, seconds: float, concurrency: int, *, keyed: bool) -> Line:
    async with service(bench.admin, f"messages_{number}") as served:
        await standing(served.dsn)
        body = bodies(campaign="welcome")
        numbers = count(1)

        def make() -> bytes:
            whole = request(served.url, "/v1/messages", served.key, body())
            return whole.replace(b"\r\n", f"\r\nIdempotency-Key: m-{next(numbers)}\r\n".encode(), 1) if keyed else whole

        asked = await ask(
            served.url, make, status=b"202", concurrency=concurrency, seconds=seconds, leave_out=LEAVE_OUT
        )
        async with Database(served.dsn).connection(label="bench") as conn:
            written = await conn.fetchval("SELECT count(*) FROM recipient_queue")
    return Line("POST /v1/messages" + (", keyed" if keyed else ""), asked, written)


async def run(bench: Bench, arguments: argparse.Namespace) -> list[list[Line]]:
    rounds = []
    for number in range(arguments.rounds):
        seconds, concurrency = arguments.seconds, arguments.concurrency
        lines = [
            await measure_bare(bench, number, seconds, concurrency),
            await measure_ours(bench, 2 * number, seconds, concurrency, keyed=False),
            await measure_ours(bench, 2 * number + 1, seconds, concurrency, keyed=True),
        ]
        for line in lines:
            print(line, flush=True)
            if line.written < len(line.asked.waits) or line.asked.wrong:
                raise SystemExit(f"{line.way}: {line.written} written for {len(line.asked.waits)} answers")
        rounds.append(lines)
    return rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY)
    parser.add_argument("--json", type=Path, help="write every figure there")
    arguments = parser.parse_args()
    print(HEAD, flush=True)
    rounds = on_a_server(lambda bench: run(bench, arguments))
    for at, name in ((1, "ours"), (2, "ours, keyed")):
        ratios = [lines[0].asked.rate / lines[at].asked.rate for lines in rounds]
        print(
            f"bare / {name}: {statistics.median(ratios):.2f} (each round: {', '.join(f'{one:.2f}' for one in ratios)})"
        )
    if arguments.json:
        figures = [
            [
                {"way": one.way, "rate": one.asked.rate, "p50_ms": one.asked.wait(0.5), "p99_ms": one.asked.wait(0.99)}
                for one in lines
            ]
            for lines in rounds
        ]
        arguments.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
