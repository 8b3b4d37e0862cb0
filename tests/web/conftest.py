"""The service as callers meet it: a running application, a real socket, a database of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from attrs import define, field, frozen

from postledger.config import Config, load
from postledger.database import Connection, Database
from postledger.http.app import make_app
from postledger.http.server import serving
from postledger.ledger import access


@frozen
class Answer:
    """What came back, read to its end."""

    status: int
    headers: Any
    content: bytes

    @property
    def json(self) -> Any:
        import orjson

        return orjson.loads(self.content)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and name of a problem."""
        assert self.headers["Content-Type"] == "application/problem+json", self.content
        document = self.json
        assert document["status"] == self.status
        assert document["detail"]
        return self.status, document["type"].removeprefix("/problems/")


@define
class Api:
    """A caller with a key; `key=None` shows none, `key="..."` another one."""

    url: str
    key: str
    app: web.Application
    database: Database
    session: aiohttp.ClientSession = field(repr=False)

    async def call(self, method: str, path: str, *, key: str | None = "", **options: Any) -> Answer:
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers["Authorization"] = f"Bearer {key or self.key}"
        async with self.session.request(method, f"{self.url}{path}", headers=headers, **options) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, json=json, **options)

    async def patch(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self.call("PATCH", path, json=json, **options)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, **options)

    async def new_key(self, *scopes: str) -> str:
        """Another key, with these scopes."""
        async with self.database.connection() as conn:
            return (await access.create(conn, scopes))[1]


def config_of(dsn: str, **flags: str) -> Config:
    """Of a service in a test: any free port, a public base for links."""
    return load({}, **{"database": dsn, "http": "127.0.0.1:0", "url": "https://mail.shop.example", **flags})


@asynccontextmanager
async def open_api(dsn: str, **flags: str) -> AsyncIterator[Api]:
    """The service on this database, with a key of all scopes."""
    config, database = config_of(dsn, **flags), Database(dsn)
    async with database.connection() as conn:
        _, key = await access.create(conn, access.SCOPES)
    app = make_app(config, database, listen=None if config.listen is None else Database(config.listen))
    async with (
        serving(app, config.http, grace=5.0) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
    ):
        yield Api(url, key, app, database, session)
        await session.close()
        await asyncio.sleep(0)


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    """A running service with a key of all scopes."""
    async with open_api(database) as running:
        yield running


@pytest.fixture
async def db(database: str) -> AsyncIterator[Connection]:
    """A connection as the program makes them, to look behind the service."""
    async with Database(database).connection() as conn:
        yield conn
