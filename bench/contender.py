"""What each contender's script shares with the driver: commands in, lines out.

`init` makes the schema; `enqueue N` writes N jobs and prints `T seconds`; `work` prints `S` when its loop starts and
works until it is killed; `wake N` inserts one job now and then and prints `E id ns` just before each commit, while a
`work` with BENCH_WAKE=1 prints `W id ns` at each handler's start. The clock is CLOCK_MONOTONIC, one for all.
"""

import asyncio
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

DSN = os.environ.get("BENCH_DSN", "")
WAKE = os.environ.get("BENCH_WAKE") == "1"


def handled(job_id: int) -> None:
    """The body of a handler that does nothing."""
    if WAKE:
        print("W", job_id, time.monotonic_ns(), flush=True)


def started() -> None:
    """The worker's loop begins now."""
    print("S", flush=True)


def person(number: int) -> dict[str, str]:
    """The same small payload for everybody."""
    return {"id": str(number), "email": f"user{number}@example.com", "name": f"User {number}"}


def committing(job_id: int) -> None:
    """The statement that makes this job visible goes out now."""
    print("E", job_id, time.monotonic_ns(), flush=True)


async def _timed(work: Awaitable[None]) -> None:
    began = time.perf_counter()
    await work
    print("T", time.perf_counter() - began, flush=True)


async def _wake(count: int, insert: Callable[[int], Awaitable[None]]) -> None:
    rng = random.Random(7)
    for number in range(1, count + 1):
        await asyncio.sleep(rng.uniform(0.02, 0.08))
        await insert(number)


def main(
    *,
    init: Callable[[], Awaitable[None]],
    enqueue: Callable[[int], Awaitable[None]],
    work: Callable[[], Awaitable[None]],
    open_insert: Callable[[], Awaitable[Callable[[int], Awaitable[None]]]],
) -> None:
    """Runs the command that stands on the command line."""
    command, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0

    async def run() -> None:
        match command:
            case "init":
                await init()
            case "enqueue":
                await _timed(enqueue(count))
            case "work":
                await work()
            case "wake":
                await _wake(count, await open_insert())

    uvloop.run(run())
