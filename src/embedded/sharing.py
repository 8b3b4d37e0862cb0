"""A server shared by processes: whoever comes first starts it, the last one out stops it."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from attrs import frozen

from .cluster import storage_errors
from .lock import locked, open_lock, try_lock, until
from .postmaster import Postmaster, answers, read_postmaster
from .server import Server

log = structlog.get_logger(__name__)


@asynccontextmanager
async def running(
    data: Path, *, bin_: Path | None = None, settings: Mapping[str, str] | None = None
) -> AsyncIterator[str]:
    """The DSN of the private PostgreSQL under `data`, running until the last process has left this context.

    Raises ConfigurationError or UnavailableError. A process killed in here leaves the server behind; the next
    one to come takes it over.
    """
    users = _enter(data)
    try:
        with storage_errors(data):
            server = await asyncio.to_thread(Server.at, data, bin_, settings)
            dsn = await _join(server, users)
        try:
            yield dsn
        finally:
            await _leave(server, users)
    finally:
        os.close(users)


@frozen
class Status:
    """What can be seen of a private server without starting it."""

    running: bool
    version: str | None
    """The major version that wrote the data; None: there is none yet."""
    log: Path


async def server_status(data: Path) -> Status:
    """For `doctor`. Raises ConfigurationError if the folder cannot be looked into."""
    with storage_errors(data):
        note, version = _look(data / "pgdata")
    return Status(running=await answers(note), version=version, log=data / "server.log")


def _look(pgdata: Path) -> tuple[Postmaster | None, str | None]:
    try:
        version = (pgdata / "PG_VERSION").read_text().strip()
    except FileNotFoundError:
        version = None
    return read_postmaster(pgdata.absolute()), version


def _enter(data: Path) -> int:
    """Make the folder and open the lock of its users: the first things that can go wrong with a place."""
    with storage_errors(data):
        # Root's server runs as another user, who has to pass through.
        data.mkdir(mode=0o711 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
        return open_lock(data / "users.lock")


async def _join(server: Server, users: int) -> str:
    """Be one of the users, and start the server if we are the first."""
    try:
        async with locked(server.home / "start.lock"):
            # Nobody has this exclusively but a leaver, who holds start.lock too.
            await until(lambda: try_lock(users, shared=True))
            return await server.start()
    except BaseException:
        # Interrupted: what we have started meanwhile is not to stay alone.
        await _leave(server, users)
        raise


async def _leave(server: Server, users: int) -> None:
    """Stop the server if nobody else uses it. The change of the lock may lose it, but we are leaving."""
    try:
        async with locked(server.home / "start.lock"):
            if try_lock(users):
                await server.stop()
    except FileNotFoundError:
        # Somebody deleted the folder; PostgreSQL sees that within a minute and ends by itself.
        log.warning("embedded.folder_gone", data=str(server.home))
