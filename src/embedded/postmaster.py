"""What a server says about itself: the file postmaster.pid in its data folder."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import asyncpg
from attrs import frozen

from ..errors import UnavailableError
from .sockets import PREFIX


@frozen
class Postmaster:
    """A server's own note: not proof that it lives, since a crash leaves the note behind."""

    pid: int
    port: int
    socket_folder: Path

    @property
    def in_temporary_folder(self) -> bool:
        return self.socket_folder.name.startswith(PREFIX)

    @property
    def dsn(self) -> str:
        """A connection string for the superuser through the socket, readable for asyncpg and libpq alike."""
        host = quote(str(self.socket_folder), safe="/")
        return f"postgresql://postgres@/postgres?host={host}&port={self.port}&sslmode=disable"


def read_postmaster(pgdata: Path) -> Postmaster | None:
    """The note of the server in this folder; None without one or while it is still being written."""
    try:
        pid, _, _, port, folder, *_ = (pgdata / "postmaster.pid").read_text().split("\n")
        return Postmaster(int(pid), int(port), pgdata / folder) if folder else None
    except (FileNotFoundError, ValueError):
        return None


def read_pid(pgdata: Path) -> int | None:
    """The first thing that the note has."""
    try:
        return int((pgdata / "postmaster.pid").read_text().split("\n")[0])
    except (FileNotFoundError, ValueError):
        return None


async def answers(note: Postmaster | None) -> bool:
    """Whether a connection works now; raises UnavailableError if it never will."""
    if note is None:
        return False
    try:
        conn = await asyncpg.connect(note.dsn, timeout=10, password="")
    except (OSError, asyncpg.CannotConnectNowError, asyncpg.PostgresConnectionError):
        return False
    except asyncpg.TooManyConnectionsError:
        return True
    except asyncpg.PostgresError as error:
        raise UnavailableError(f"the embedded PostgreSQL refuses us: {error}; look at its pg_hba.conf") from None
    with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        await conn.close()
    return True


def is_alive(pgdata: Path, pid: int | None) -> bool:
    """Whether the process is a server on this data: after a machine crash any program may have its number."""
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's, and the server's user is one we may signal
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", pgdata)
    except FileNotFoundError:
        return not Path("/proc/self").exists() and "postgres" in _command(pid)
    except PermissionError:
        return False


def _command(pid: int) -> str:
    """For systems without /proc."""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
