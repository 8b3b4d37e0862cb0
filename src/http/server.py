"""Serves the application on its address, and ends in order: open requests finish, streams end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from ..errors import ConfigurationError

GRACE = 30.0
"""Seconds for open requests at the end."""


@asynccontextmanager
async def serving(app: web.Application, address: tuple[str, int], *, grace: float = GRACE) -> AsyncIterator[str]:
    """Serves inside the block; yields the base URL, with the port that was taken where 0 was asked for.

    Raises ConfigurationError where the address cannot be had.
    """
    runner = web.AppRunner(
        app,
        shutdown_timeout=grace,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=75.0,
    )
    await runner.setup()
    try:
        host, port = address
        site = web.TCPSite(runner, host, port)
        try:
            await site.start()
        except OSError as error:
            raise ConfigurationError(
                f"--http {host}:{port} cannot be listened on ({error.strerror or error}): end what uses it, or name "
                "another address"
            ) from error
        yield _url(host, runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _url(host: str, port: int) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
