"""PGQueuer, with the settings that make it fastest: its asyncpg pool driver, 2,000 jobs to a claim."""

import json
from collections.abc import Awaitable, Callable

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.contender import DSN, committing, handled, main, person, started

BATCH = 2000


async def _queries() -> Queries:
    return Queries(AsyncpgDriver(await asyncpg.connect(DSN)))


async def init() -> None:
    await (await _queries()).install()


async def enqueue(count: int) -> None:
    queries = await _queries()
    for start in range(1, count + 1, 1000):
        chunk = [json.dumps(person(n)).encode() for n in range(start, min(start + 1000, count + 1))]
        await queries.enqueue(["send"] * len(chunk), chunk, [0] * len(chunk))


async def work() -> None:
    queuer = PgQueuer.from_asyncpg_pool(await asyncpg.create_pool(DSN, min_size=4, max_size=4))

    @queuer.entrypoint("send")
    async def send(job: Job) -> None:
        handled(int(json.loads(job.payload or b"{}")["id"]))

    started()
    await queuer.run(batch_size=BATCH)


async def open_insert() -> Callable[[int], Awaitable[None]]:
    queries = await _queries()

    async def insert(number: int) -> None:
        committing(number)
        await queries.enqueue("send", json.dumps(person(number)).encode())

    return insert


if __name__ == "__main__":
    main(init=init, enqueue=enqueue, work=work, open_insert=open_insert)
