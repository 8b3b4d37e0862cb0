"""The least that takes a mail by HTTP: an aiohttp handler that reads JSON and does one INSERT, and nothing else."""

import asyncio
import json
import sys

import asyncpg
import uvloop
from aiohttp import web

POOL = 10
"""As many connections as the service has."""

TABLE = """
CREATE TABLE mails (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    address text NOT NULL,
    data jsonb NOT NULL,
    status text NOT NULL DEFAULT 'pending',
    created_at timestamptz NOT NULL DEFAULT now()
)
"""
INSERT = "INSERT INTO mails (address, data) VALUES ($1, $2) RETURNING id"


async def main(dsn: str) -> None:
    pool = await asyncpg.create_pool(dsn, min_size=POOL, max_size=POOL)

    async def take(request: web.Request) -> web.Response:
        mail = await request.json()
        number = await pool.fetchval(INSERT, mail["email"], json.dumps(mail["data"]))
        return web.json_response({"id": str(number)}, status=202)

    app = web.Application()
    app.router.add_post("/v1/messages", take)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
