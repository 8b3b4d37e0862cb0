"""One private PostgreSQL server: started, found alive, stopped."""

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

import structlog
from attrs import field, frozen

from ..errors import PostledgerError, UnavailableError
from .accounts import Account, Entrance, account_for, entrance, hand_over, run
from .binaries import programs
from .cluster import check_version, create_cluster, explain
from .lock import PAUSE, is_free, open_lock, try_lock, until
from .postmaster import Postmaster, answers, is_alive, read_pid, read_postmaster
from .sockets import is_socket_path, temporary_folder

log = structlog.get_logger(__name__)

Mode = Literal["smart", "fast", "immediate"]
SIGNALS: Mapping[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
PATIENCE = 300.0
"""Seconds for the slowest healthy server: two gigabytes of log to recover, a last checkpoint to write."""
SMALL_DEV_SHM = 256 << 20
LOG_LIMIT = 10 << 20


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
        """Start it unless it runs; the DSN once it answers. One caller at a time (`start.lock`)."""
        with self._patience():
            async with asyncio.timeout(PATIENCE):
                while (begin := await asyncio.to_thread(self._launch)) is None:
                    # Ours, or one that is just ending: then the lock comes free and we start another.
                    if await answers(read_postmaster(self.pgdata)):
                        return await self._ready(0)
                    await asyncio.sleep(PAUSE)
                return await self._ready(begin)

    async def stop(self, mode: Mode = "fast") -> None:
        """Stop it and wait until its last process is gone."""
        with self._patience():
            async with asyncio.timeout(PATIENCE):
                # One that is just being started has the lock and no note yet.
                await until(lambda: is_free(self.lock) or read_postmaster(self.pgdata) is not None)
                if note := read_postmaster(self.pgdata):
                    self._signal(note, SIGNALS[mode])
                    await until(lambda: is_free(self.lock) and not is_alive(self.pgdata, note.pid))
                    _remove_temporary(note)
        log.debug("embedded.stopped", data=str(self.home))

    def _signal(self, note: Postmaster, number: signal.Signals) -> None:
        if is_alive(self.pgdata, note.pid):
            os.kill(note.pid, number)

    async def _ready(self, log_from: int) -> str:
        while not await answers(note := read_postmaster(self.pgdata)):
            if is_free(self.lock) and not is_alive(self.pgdata, read_pid(self.pgdata)):
                raise self._failure(log_from)
            await asyncio.sleep(PAUSE)
        assert note is not None
        return note.dsn

    def _launch(self) -> int | None:
        """Start the process unless one lives; returns where its part of the log begins.

        Takes and gives back its handle within one thread: a cancelled caller cannot close it half-way.
        """
        handle = open_lock(self.lock)
        try:
            return self._launch_under(handle) if try_lock(handle) else None
        finally:
            os.close(handle)

    def _launch_under(self, handle: int) -> int | None:
        if is_alive(self.pgdata, read_pid(self.pgdata)):
            return None  # started by hand, without our lock
        self._clear()
        if self.pgdata.exists():
            check_version(self.pgdata, self.bin, self.account)
        else:
            create_cluster(self.pgdata, self.bin, self.account, handle)
        return self._spawn(handle)

    def _clear(self) -> None:
        """Put away what a dead server left.

        PostgreSQL itself gives up when the number in there belongs to any living process, or to a zombie that
        a container's init never buried. The lock says that nobody of this server is left.
        """
        if note := read_postmaster(self.pgdata):
            _remove_temporary(note)
        (self.pgdata / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        (self.pgdata / "postmaster.pid").unlink(missing_ok=True)

    def _spawn(self, handle: int) -> int:
        """pg_ctl puts the server into a session of its own and lets go of it: nobody need wait for it."""
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.rename(self.log.with_suffix(".log.1"))
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            hand_over(self.log, self.account)
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
        sockets = inside if is_socket_path(self.pgdata) else str(temporary_folder(self.pgdata, self.account))
        options = {"unix_socket_directories": sockets, "port": "5432", **shared_memory(), **self.settings}
        return " ".join(f"-c {name}={shlex.quote(value)}" for name, value in options.items())

    def _failure(self, log_from: int) -> PostledgerError:
        with self.log.open(errors="replace") as lines:
            lines.seek(log_from)
            return explain(lines.read(), self.home)

    @contextmanager
    def _patience(self) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise UnavailableError(
                f"the embedded PostgreSQL does not answer after {PATIENCE:.0f} s: see {self.log}"
            ) from None


def _remove_temporary(note: Postmaster) -> None:
    if note.in_temporary_folder:
        shutil.rmtree(note.socket_folder, ignore_errors=True)


def shared_memory() -> dict[str, str]:
    """Parallel queries need shared memory; a container's /dev/shm may hold 64 MB of it."""
    if sys.platform != "linux":
        return {}
    try:
        size = os.statvfs("/dev/shm")
    except FileNotFoundError:
        return {"dynamic_shared_memory_type": "sysv"}
    return {"dynamic_shared_memory_type": "sysv"} if size.f_frsize * size.f_blocks < SMALL_DEV_SHM else {}
