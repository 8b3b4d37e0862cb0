"""One private PostgreSQL server: started, found alive, stopped."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

import asyncpg
import structlog
from attrs import field, frozen

from ..errors import PostledgerError, UnavailableError
from .accounts import Account, Entrance, account_for, entrance, run
from .binaries import programs
from .cluster import check_version, create_cluster, explain
from .lock import PAUSE, is_free, open_lock, try_lock, until
from .postmaster import Postmaster, is_alive, read_postmaster

log = structlog.get_logger(__name__)

Mode = Literal["smart", "fast", "immediate"]
SIGNALS: Mapping[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
SOCKET_PATH_LIMIT = 107 if sys.platform == "linux" else 103
SMALL_DEV_SHM = 256 << 20
LOG_LIMIT = 10 << 20
TEMPORARY = "postledger-"


@frozen
class Server:
    """The server of one data folder, which other processes may use too.

    `server.lock` is inherited by the server and its children: it is free exactly when none of them lives.
    Process numbers do not tell that: after a crash they belong to others, and in another container they mean
    other processes.
    """

    home: Path
    bin: Path
    account: Account
    settings: Mapping[str, str] = field(factory=dict)

    @classmethod
    def at(cls, home: Path, bin_: Path | None = None, settings: Mapping[str, str] | None = None) -> Self:
        """For a folder that exists; `bin_` names another installation than the package's."""
        home = home.resolve()
        account = account_for(home / "pgdata")
        return cls(home, bin_ or programs(home, account), account, settings or {})

    @property
    def pgdata(self) -> Path:
        return self.home / "pgdata"

    @property
    def lock(self) -> Path:
        return self.home / "server.lock"

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    async def start(self) -> str:
        """Start it unless it runs; the DSN once it answers. Callers hold `start.lock`."""
        handle = open_lock(self.lock)
        try:
            while not try_lock(handle):
                # Ours, or one that is just ending: then the lock comes free and we start another.
                if await answers(read_postmaster(self.pgdata)):
                    return await self._ready(0)
                await asyncio.sleep(PAUSE)
            begin = await asyncio.to_thread(self._launch, handle)
        finally:
            os.close(handle)
        return await self._ready(begin)

    async def stop(self, mode: Mode = "fast") -> None:
        """Stop it and wait until its last process is gone."""
        note = read_postmaster(self.pgdata)
        if note is None:
            return
        if is_alive(self.pgdata, note.pid):
            os.kill(note.pid, SIGNALS[mode])
        await until(lambda: is_free(self.lock) and not is_alive(self.pgdata, note.pid))
        self._remove_temporary(note)
        log.debug("embedded.stopped", data=str(self.home))

    async def _ready(self, log_from: int) -> str:
        while not await answers(note := read_postmaster(self.pgdata)):
            if is_free(self.lock) and not (note and is_alive(self.pgdata, note.pid)):
                raise self._failure(log_from)
            await asyncio.sleep(PAUSE)
        assert note is not None
        return note.dsn

    def _launch(self, handle: int) -> int:
        """Start the server process under the lock; returns where its part of the log begins."""
        note = read_postmaster(self.pgdata)
        if note and is_alive(self.pgdata, note.pid):
            return 0  # started by hand, without our lock
        if note:
            # PostgreSQL itself gives up when the number belongs to any living process (or to a zombie that a
            # container's init never buried). The lock says that nobody of this server is left.
            (note.socket_folder / f".s.PGSQL.{note.port}.lock").unlink(missing_ok=True)
            self._remove_temporary(note)
            (self.pgdata / "postmaster.pid").unlink()
        if self.pgdata.exists():
            check_version(self.pgdata, self.bin, self.account)
        else:
            create_cluster(self.pgdata, self.bin, self.account, handle)
        return self._spawn(handle)

    def _spawn(self, handle: int) -> int:
        """pg_ctl puts the server into a session of its own and lets go of it: nobody need wait for it."""
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.rename(self.log.with_suffix(".log.1"))
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            begin = os.fstat(output).st_size
            with entrance(self.pgdata, self.account) as way:
                command: list[str | Path] = [self.bin / "pg_ctl", "start", "--no-wait", "--silent"]
                command += ["-D", way.path, "-o", self._flags(way)]
                done = run(command, self.account, output=output, keep=[handle, *way.handles])
        finally:
            os.close(output)
        if done.returncode != 0:
            raise self._failure(begin)
        return begin

    def _flags(self, way: Entrance) -> str:
        """In the data folder itself, which PostgreSQL keeps at 0700: whoever can reach the socket is let in.

        Where that path is too long for a socket, in a folder as closed under the system's temporary one.
        """
        inside = "." if way.handles else str(self.pgdata)
        sockets = inside if is_socket_path(self.pgdata) else str(self._temporary())
        options = {"unix_socket_directories": sockets, "port": "5432", **shared_memory(), **self.settings}
        return " ".join(f"-c {name}={shlex.quote(value)}" for name, value in options.items())

    def _temporary(self) -> Path:
        bases = [
            up for up in (tempfile.gettempdir(), "/tmp") if is_socket_path(Path(up) / "postledger-12345678")
        ]
        place = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=bases[0]))
        if self.account.uid != os.geteuid():
            os.chown(place, self.account.uid, self.account.gid)
        return place

    def _remove_temporary(self, note: Postmaster) -> None:
        if note.socket_folder.name.startswith(TEMPORARY):
            shutil.rmtree(note.socket_folder, ignore_errors=True)

    def _failure(self, log_from: int) -> PostledgerError:
        with self.log.open(errors="replace") as lines:
            lines.seek(log_from)
            return explain(lines.read(), self.home)


def is_socket_path(folder: Path) -> bool:
    """Whether a socket here can be named: short enough, and nothing that cuts a list of folders or hosts."""
    try:
        name = str(folder).encode() + b"/.s.PGSQL.5432"
    except UnicodeEncodeError:
        return False
    plain = str(folder).isprintable() and not set(str(folder)) & set(",\"'\\")
    return plain and len(name) <= SOCKET_PATH_LIMIT


def shared_memory() -> dict[str, str]:
    """Parallel queries need shared memory; a container's /dev/shm may hold 64 MB of it."""
    if sys.platform != "linux":
        return {}
    try:
        size = os.statvfs("/dev/shm")
    except FileNotFoundError:
        return {"dynamic_shared_memory_type": "sysv"}
    return {"dynamic_shared_memory_type": "sysv"} if size.f_frsize * size.f_blocks < SMALL_DEV_SHM else {}


async def answers(note: Postmaster | None) -> bool:
    """Whether a connection works now; raises UnavailableError if it never will."""
    if note is None:
        return False
    try:
        conn = await asyncpg.connect(note.dsn, timeout=10, password="")
    except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
        return False
    except asyncpg.TooManyConnectionsError:
        return True
    except asyncpg.PostgresError as error:
        raise UnavailableError(
            f"the embedded PostgreSQL refuses us: {error}; look at its pg_hba.conf"
        ) from None
    with contextlib.suppress(OSError, asyncpg.PostgresError):
        await conn.close()
    return True
