"""Serves the application on its address, and ends in order: open requests finish, streams end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from ..errors import ConfigurationError
from .draining import REQUESTS
from .keys import STOPPING

GRACE = 30.0
"""Seconds for open requests at the end."""

CUT_AFTER = 1.0
"""Seconds more, in which those that had their time write what they have to say."""


@asynccontextmanager
async def serving(app: web.Application, address: tuple[str, int], *, grace: float = GRACE) -> AsyncIterator[str]:
    """Serves inside the block; yields the base URL, with the port that was taken where 0 was asked for.

    At its end nothing new is taken, streams end, and requests have `grace` seconds to finish. Raises
    ConfigurationError where the address cannot be had.
    """
    runner = web.AppRunner(
        app, shutdown_timeout=CUT_AFTER, access_log=None, handler_cancellation=True, keepalive_timeout=75.0
    )
    await runner.setup()
    try:
        site = await _listen(runner, *address)
        yield _url(address[0], runner.addresses[0][1])
        await site.stop()
        app[STOPPING].set()
        await app[REQUESTS].finished(grace)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> web.TCPSite:
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as error:
        raise ConfigurationError(
            f"--http {host}:{port} cannot be listened on ({error.strerror or error}): end what uses it, or name "
            "another address"
        ) from error
    return site


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
