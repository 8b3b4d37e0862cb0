"""A running service whose webhooks have keys, and what stands for the world outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from attrs import define, evolve, field

from postledger.config import Webhooks
from postledger.database import Database
from postledger.http.app import make_app
from postledger.http.fetching import Fetched, NotFetched
from postledger.http.server import serving
from postledger.http.webhooks.endpoint import OUTSIDE
from tests.web.conftest import config_of


@define
class World:
    """Answers for the addresses that it knows; `asked` has every one that was asked for."""

    pages: Mapping[str, bytes]
    asked: list[str] = field(factory=list)
    confirms: bool = True

    async def fetch(self, url: str, *, hosts: Callable[[str], bool]) -> Fetched:
        assert hosts(urlsplit(url).hostname or ""), url
        self.asked.append(url)
        if url in self.pages:
            return Fetched(200, self.pages[url])
        if "Action=ConfirmSubscription" in url and self.confirms:
            return Fetched(200, b"<ConfirmSubscriptionResponse/>")
        raise NotFetched("nobody is there")


@define
class Service:
    """Where providers post to."""

    url: str
    app: web.Application
    session: aiohttp.ClientSession

    async def post(self, provider: str, body: bytes, headers: Mapping[str, str] | None = None) -> int:
        async with self.session.post(f"{self.url}/webhooks/{provider}", data=body, headers=headers) as response:
            await response.read()
            return response.status


@asynccontextmanager
async def open_service(dsn: str, keys: Webhooks, world: World) -> AsyncIterator[Service]:
    """The service on this database."""
    config = evolve(config_of(dsn), webhooks=keys)
    app = make_app(config, Database(dsn))
    app[OUTSIDE] = world
    async with serving(app, config.http, grace=5.0) as url, aiohttp.ClientSession() as session:
        yield Service(url, app, session)
