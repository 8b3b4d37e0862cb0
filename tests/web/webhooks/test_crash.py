"""What was answered with 200 is there, whatever happens to the process that answered."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import aiohttp

from postledger.database import Connection
from tests.eventually import eventually
from tests.web.webhooks import signing
from tests.web.webhooks.conftest import log_of, send, suppressed


async def test_killed_right_after_the_200_the_event_is_in_the_database(database: str, app: Connection, tmp_path):
    mails = await send(app, 40)
    keys = {"POSTLEDGER_WEBHOOK_MAILGUN": signing.MAILGUN_KEY, "POSTLEDGER_HTTP": "127.0.0.1:0"}
    arguments = ("-m", "postledger", "serve", "--database", database)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        cwd=tmp_path,
        env={**os.environ, **keys},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        url = await _url(process)
        taken: list[int] = []

        async def post(session: aiohttp.ClientSession, place: int) -> None:
            mail = mails[place]
            fields = {"recipient": mail.address, "user-variables": {"delivery_id": mail.reference}}
            body, headers = signing.mailgun("complained", **fields)
            async with session.post(f"{url}/webhooks/mailgun", data=body, headers=headers) as answer:
                if answer.status == 200:
                    taken.append(place)
                    if len(taken) == 5:  # with others of its group, and of the next, under way
                        os.kill(process.pid, signal.SIGKILL)

        async with aiohttp.ClientSession() as session:
            await asyncio.gather(*(post(session, place) for place in range(40)), return_exceptions=True)
        await process.wait()
        assert len(taken) >= 5
        for place in taken:
            assert await log_of(app, mails[place]) == ["Complained"]
            assert await suppressed(app, mails[place].address) == "complained"
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()

    async def over() -> None:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        assert await app.fetchval(others) == 0

    await eventually(over, within=20)


async def _url(process: asyncio.subprocess.Process) -> str:
    """Where it serves, as its log says."""
    assert process.stderr is not None
    async with asyncio.timeout(30):
        while line := (await process.stderr.readline()).decode():
            if "http://" in line:
                return "http://" + line.partition("http://")[2].split()[0].strip("\"',")
    raise AssertionError("it ended before it served")
