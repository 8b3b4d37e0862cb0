"""What a server says about itself: the file postmaster.pid in its data folder."""

import os
import subprocess
from pathlib import Path
from urllib.parse import quote

from attrs import frozen


@frozen
class Postmaster:
    """A server's own note: not proof that it lives, since a crash leaves the note behind."""

    pid: int
    port: int
    socket_folder: Path

    @property
    def dsn(self) -> str:
        """A connection string for the superuser through the socket, readable for asyncpg and libpq alike."""
        host = quote(str(self.socket_folder), safe="/")
        return f"postgresql://postgres@/postgres?host={host}&port={self.port}"


def read_postmaster(pgdata: Path) -> Postmaster | None:
    """The note of the server in this folder; None without one or while it is still being written."""
    try:
        lines = (pgdata / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
        return Postmaster(int(lines[0]), int(lines[3]), pgdata / lines[4])
    except (FileNotFoundError, IndexError, ValueError):
        return None


def is_alive(pgdata: Path, pid: int) -> bool:
    """Whether the process is a server on this data: after a machine crash any program may have its number."""
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
    return subprocess.run(
        ["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
