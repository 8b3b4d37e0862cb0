"""The worker of the usual articles: claim 50, send them, one UPDATE for each, sleep when there is nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import asyncpg

from bench.contender import DSN, committing, handled, main, person, started

SCHEMA = """
CREATE TABLE campaigns (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL);
INSERT INTO campaigns (name) VALUES ('bench');
CREATE TABLE mails (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    campaign_id bigint NOT NULL DEFAULT 1 REFERENCES campaigns,
    address text NOT NULL,
    data jsonb NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    tries int NOT NULL DEFAULT 0,
    locked_at timestamptz,
    sent_at timestamptz,
    error text,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX mails_waiting ON mails (status, id);
CREATE INDEX mails_campaign ON mails (campaign_id, status);
"""
CLAIM = """
UPDATE mails SET status = 'sending', tries = tries + 1, locked_at = now()
WHERE id IN (SELECT id FROM mails WHERE status = 'pending' ORDER BY id LIMIT 50 FOR UPDATE SKIP LOCKED)
RETURNING id, data
"""
DONE = "UPDATE mails SET status = 'sent', sent_at = now(), locked_at = NULL WHERE id = $1"
INSERT = "INSERT INTO mails (address, data) VALUES ($1, $2)"
POOL = 20


def _row(number: int) -> tuple[str, str]:
    data = person(number)
    return data["email"], json.dumps(data)


async def init() -> None:
    conn = await asyncpg.connect(DSN)
    await conn.execute(SCHEMA)


async def enqueue(count: int) -> None:
    conn = await asyncpg.connect(DSN)
    for start in range(1, count + 1, 1000):
        await conn.executemany(INSERT, [_row(n) for n in range(start, min(start + 1000, count + 1))])


async def work() -> None:
    pool = await asyncpg.create_pool(DSN, min_size=POOL, max_size=POOL)

    async def send(row: asyncpg.Record) -> None:
        handled(int(json.loads(row["data"])["id"]))
        await pool.execute(DONE, row["id"])

    started()
    while True:
        rows = await pool.fetch(CLAIM)
        if rows:
            await asyncio.gather(*(send(row) for row in rows))
        else:
            await asyncio.sleep(5)


async def open_insert() -> Callable[[int], Awaitable[None]]:
    conn = await asyncpg.connect(DSN)

    async def insert(number: int) -> None:
        committing(number)
        await conn.execute(INSERT, *_row(number))

    return insert


if __name__ == "__main__":
    main(init=init, enqueue=enqueue, work=work, open_insert=open_insert)
