"""The end of a service: requests that are under way finish, bodies that are still coming in included."""

from __future__ import annotations

import asyncio

from aiohttp import web

from .keys import STOPPING
from .route import Handler


class Requests:
    """How many are under way.

    The server's own way of ending reads nothing any more from the moment it begins: an upload half sent would wait for
    its other half until the grace is over. So it begins when none is under way.
    """

    def __init__(self) -> None:
        self._open = 0
        self._none = asyncio.Event()
        self._none.set()

    def begin(self) -> None:
        """One more."""
        self._open += 1
        self._none.clear()

    def end(self) -> None:
        """One less."""
        self._open -= 1
        if not self._open:
            self._none.set()

    async def finished(self, within: float) -> None:
        """Returns when none is under way, or after so many seconds."""
        try:
            async with asyncio.timeout(within):
                await self._none.wait()
        except TimeoutError:
            return


REQUESTS: web.AppKey[Requests] = web.AppKey("requests", Requests)


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost: what it does not count may be cut off."""
    requests = request.app[REQUESTS]
    requests.begin()
    try:
        return await handler(request)
    finally:
        requests.end()


async def close_when_stopping(request: web.Request, response: web.StreamResponse) -> None:
    """Whoever keeps a connection is told to make another, elsewhere."""
    if request.app[STOPPING].is_set():
        response.force_close()
