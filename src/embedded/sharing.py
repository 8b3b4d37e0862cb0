"""A server shared by processes: whoever comes first starts it, the last one out stops it."""

import errno
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog

from ..errors import ConfigurationError, UnavailableError
from .lock import locked, open_lock, try_lock
from .server import Server

log = structlog.get_logger(__name__)


@asynccontextmanager
async def running(
    data: Path, *, bin_: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """The DSN of the private PostgreSQL under `data`, running until the last process has left this context.

    Raises ConfigurationError or UnavailableError. One that was killed in here leaves the server behind; the
    next to come takes it over.
    """
    users = _enter(data)
    start_lock = data / "start.lock"
    try:
        async with locked(start_lock):
            # Nobody takes this exclusively but a leaver, who holds start.lock too.
            try_lock(users, shared=True)
            server = Server.at(data, bin_, settings)
            dsn = await server.start()
        try:
            yield dsn
        finally:
            async with locked(start_lock):
                if try_lock(users):
                    await server.stop()
    finally:
        os.close(users)


def _enter(data: Path) -> int:
    """Make the folder and open the lock of its users: the first things that can go wrong with a place."""
    try:
        # Root's server runs as another user, who has to pass through.
        data.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        return open_lock(data / "users.lock")
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise UnavailableError(
                f"no space left in {data}: free some, or name another with --data"
            ) from None
        raise ConfigurationError(
            f"the data folder {data} cannot be used ({os.strerror(error.errno or 0)}): "
            "name another with --data or POSTLEDGER_DATA"
        ) from None
