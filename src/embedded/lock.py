"""File locks between processes: taken without blocking the loop, gone with whoever held them."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

PAUSE = 0.02


def open_lock(path: Path) -> int:
    """A handle to lock; mode 0600, so that no other user can hold up the owner."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Take (or change) the lock of this handle if nobody else stands against it."""
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock at this moment."""
    handle = open_lock(path)
    try:
        return try_lock(handle)
    finally:
        os.close(handle)


async def until(holds: Callable[[], bool]) -> None:
    """Ask again and again; for what the system lets one ask only (locks, other users' processes)."""
    while True:
        if holds():
            return
        await asyncio.sleep(PAUSE)


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[None]:
    """Hold the lock for ourselves; waits by asking, since a thread inside flock() cannot be cancelled."""
    handle = open_lock(path)
    try:
        await until(lambda: try_lock(handle))
        yield
    finally:
        os.close(handle)
