"""`serve` and `up` as processes: started, asked, stopped, and what a restart of the database does to them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import define

from postledger.database import Database
from postledger.ledger import access
from postledger.projections.verify import verify
from tests.eventually import eventually
from tests.servers import PrivateServer

WITHIN = 60.0


@define
class Running:
    """A service in a process of its own."""

    process: asyncio.subprocess.Process
    said: dict[str, Any]
    session: aiohttp.ClientSession
    key: str

    @property
    def url(self) -> str:
        return str(self.said["url"])

    async def get(self, path: str) -> tuple[int, Any]:
        return await self.ask("GET", path)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.key}"}
        async with self.session.request(method, f"{self.url}{path}", json=body, headers=headers) as answer:
            return answer.status, json.loads(await answer.read() or b"null")

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Its exit code, and what it had to say."""
        self.process.send_signal(number)
        async with asyncio.timeout(WITHIN):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@asynccontextmanager
async def running(folder: Path, *arguments: str, dsn: str | None = None, key: str = "") -> AsyncIterator[Running]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTLEDGER_")}
    ours = {"POSTLEDGER_HTTP": "127.0.0.1:0", "POSTLEDGER_URL": "https://mail.shop.example"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "postledger", *arguments, "--json"),
        cwd=folder,
        env=kept | ours | ({} if dsn is None else {"POSTLEDGER_DATABASE": dsn}),
        stdout=PIPE,
        stderr=PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(WITHIN):
            line = await process.stdout.readline()
        assert line, (await process.communicate())[1].decode()
        said = json.loads(line)
        async with aiohttp.ClientSession() as session:
            yield Running(process, said, session, said.get("key", key))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def key_of(dsn: str) -> str:
    async with Database(dsn).connection() as conn:
        return (await access.create(conn, access.SCOPES))[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_it_is_told_to_end(database: str, tmp_path: Path, number: signal.Signals):
    async with running(tmp_path, "serve", dsn=database, key=await key_of(database)) as service:
        assert await service.get("/v1/campaigns") == (200, {"items": [], "next": None})
        assert "key" not in service.said  # the database is somebody's own
        code, err = await service.stop(number)
        assert code == 0, err
        assert re.search(r"stopped", err)
        with pytest.raises(aiohttp.ClientConnectionError):
            await service.get("/v1/campaigns")


async def test_an_address_that_is_taken_is_said(database: str, tmp_path: Path):
    async with running(tmp_path, "serve", dsn=database) as service:
        address = service.url.removeprefix("http://")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postledger", "serve", "--database", database, "--http", address),
            stderr=PIPE,
        )
        _, err = await process.communicate()
        assert process.returncode == 78
        assert address in err.decode().splitlines()[-1]


async def test_open_requests_finish_and_new_ones_are_refused(database: str, tmp_path: Path):
    """An upload that is half sent when the signal comes is taken to its end, and answered."""
    async with running(tmp_path, "serve", dsn=database, key=await key_of(database)) as service:
        await service.ask("POST", "/v1/senders", {"name": "nowhere", "url": "null://"})
        whole = {"name": "a", "subject": "Hi", "from": "a@shop.example", "html": "<p>Hi</p>", "sender": "nowhere"}
        body = json.dumps(whole).encode()
        host, port = service.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/campaigns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {service.key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:10])
        await writer.drain()
        await service.get("/v1/campaigns")  # by now the other request is being read
        service.process.send_signal(signal.SIGTERM)

        async def closed() -> None:
            try:
                _, other = await asyncio.open_connection(host, int(port))
            except OSError:
                return
            other.close()
            raise AssertionError("it still listens")

        await eventually(closed, within=WITHIN)
        writer.write(body[10:])
        status = await reader.readline()
        assert b" 201 " in status, status
        writer.close()
        async with asyncio.timeout(WITHIN):
            await service.process.communicate()
        assert service.process.returncode == 0
    async with Database(database).connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM campaigns") == 1
        sealed = "EXISTS (SELECT FROM blocks b WHERE b.positions @> e.position)"
        assert await conn.fetchval(f"SELECT count(*) FROM events e WHERE NOT {sealed}") == 0  # before it left


async def test_streams_end_and_workers_give_back_when_it_is_told_to_end(database: str, tmp_path: Path):
    """A stream that waits for news, and a campaign that a slow sender is in the middle of."""
    async with running(tmp_path, "up", "--grace", "20s", dsn=database, key=await key_of(database)) as service:
        await service.ask("POST", "/v1/senders", {"name": "slow", "url": "null://", "rate": "1/m"})
        whole = {"name": "a", "subject": "Hi", "from": "a@shop.example", "html": "<p>Hi</p>", "sender": "slow"}
        _, campaign = await service.ask("POST", "/v1/campaigns", whole)
        path = f"/v1/campaigns/{campaign['id']}"
        await service.ask("POST", f"{path}/recipients", [{"email": f"p{n}@example.org"} for n in range(20)])
        headers = {"Authorization": f"Bearer {service.key}"}
        async with service.session.get(f"{service.url}/v1/events/stream", headers=headers) as stream:
            assert stream.status == 200
            await stream.content.readline()
            await service.ask("POST", f"{path}/start")

            async def begun() -> None:
                assert (await service.get(path))[1]["counts"]["sent"] >= 1

            await eventually(begun, within=WITHIN)
            service.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(WITHIN):
                await stream.content.read()  # to its end, which is an orderly one
        async with asyncio.timeout(WITHIN):
            _, err = await service.process.communicate()
        assert service.process.returncode == 0, err.decode()
    async with Database(database).connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM claims") == 0
        counts = dict(await conn.fetch("SELECT status::text, count(*) FROM recipient_queue GROUP BY 1"))
        assert set(counts) == {"pending", "sent"}, counts
        assert (await verify(conn, None)).equal


async def test_a_restart_of_the_database_ends_nothing(own_server: PrivateServer, tmp_path: Path):
    key = await key_of(own_server.dsn)
    async with running(tmp_path, "up", dsn=own_server.dsn, key=key) as service:
        assert (await service.get("/v1/campaigns"))[0] == 200
        await own_server.stop("immediate")
        status, problem = await service.get("/v1/campaigns")
        assert (status, problem["type"]) == (503, "/problems/unavailable")
        assert "postgresql://" not in json.dumps(problem)
        await own_server.start()

        async def back() -> None:
            assert (await service.get("/v1/campaigns"))[0] == 200

        await eventually(back, within=WITHIN)
        await _sent(service)
        code, err = await service.stop()
        assert code == 0, err


async def _sent(service: Running) -> None:
    """A campaign goes from nothing to its end."""
    await service.ask("POST", "/v1/senders", {"name": "nowhere", "url": "null://"})
    whole = {"name": "a", "subject": "Hi", "from": "a@shop.example", "html": "<p>Hi</p>", "sender": "nowhere"}
    status, campaign = await service.ask("POST", "/v1/campaigns", whole)
    assert status == 201, campaign
    path = f"/v1/campaigns/{campaign['id']}"
    status, report = await service.ask("POST", f"{path}/recipients", [{"email": "ann@example.com"}])
    assert status in (200, 201), report
    assert (await service.ask("POST", f"{path}/start"))[0] == 200

    async def completed() -> None:
        _, shown = await service.get(path)
        assert (shown["status"], shown["counts"]["sent"]) == ("completed", 1)

    await eventually(completed, within=WITHIN)


async def test_alone_it_has_its_own_database_and_a_first_key_shown_once(tmp_path: Path):
    async with running(tmp_path, "up") as service:
        assert service.said["scopes"] == list(access.SCOPES)
        first = service.key
        await _sent(service)
        code, err = await service.stop()
        assert code == 0, err
        assert first not in err
    async with running(tmp_path, "serve", key=first) as service:
        assert "key" not in service.said
        assert (await service.get("/v1/campaigns"))[0] == 200
        made = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postledger", "keys", "create", "--scope", "read", "--json"),
            cwd=tmp_path,
            stdout=PIPE,
        )
        out, _ = await made.communicate()
        service.key = json.loads(out)["key"]
        assert (await service.get("/v1/campaigns"))[0] == 200
        code, err = await service.stop()
        assert code == 0, err
