"""The feed as a resource of the application: its reader runs as long as the application does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from ...workers.loops import forever
from ..keys import DATABASE, LISTEN, STOPPING
from .hub import Hub

HUB: web.AppKey[Hub] = web.AppKey("hub", Hub)
READERS: web.AppKey[asyncio.Semaphore] = web.AppKey("feed readers", asyncio.Semaphore)

AT_ONCE = 3
"""Streams that read the log at a time; the others wait their turn."""


async def feeding(app: web.Application) -> AsyncIterator[None]:
    """The reader of the log; when the service is asked to end, streams end first."""
    app[HUB] = hub = Hub(app[DATABASE], app[LISTEN])
    app[READERS] = asyncio.Semaphore(AT_ONCE)
    loop = asyncio.ensure_future(forever(hub.step, "feed"))
    ending = asyncio.ensure_future(_end(hub, app[STOPPING]))
    yield
    for task in (loop, ending):
        task.cancel()
    await asyncio.gather(loop, ending, return_exceptions=True)
    await hub.close()


async def _end(hub: Hub, stopping: asyncio.Event) -> None:
    await stopping.wait()
    hub.end()
