"""Processes of root and of an ordinary user that share a private PostgreSQL."""

import asyncio
import atexit
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Self

import asyncpg

import postledger
from postledger.embedded.lock import is_free
from postledger.embedded.postmaster import read_postmaster

GUEST = Path(__file__).with_name("guest.py").read_text()
PEOPLE = ["root", "ordinary"] if os.geteuid() == 0 else ["ordinary"]
RIGHTS = ["setpriv", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


def uid_of(person: str) -> int:
    """Ours, except where root plays the ordinary user."""
    plays = person == "ordinary" and os.geteuid() == 0
    return pwd.getpwnam("nobody").pw_uid if plays else os.geteuid()


def as_person(person: str, command: list[str]) -> list[str]:
    uid = uid_of(person)
    if uid == os.geteuid():
        return command
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]


@cache
def python(person: str) -> list[str]:
    """An interpreter that this person can run: root's own may lie where only root can go."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    others = [str(found) for up in os.get_exec_path() if (found := Path(up, name)).exists()]
    for candidate in [sys.executable, *others]:
        command = as_person(person, [candidate])
        if subprocess.run([*command, "-c", GUEST, "--check"], env=environment(), check=False).returncode == 0:
            return command
    # Last, with a right that an ordinary user lacks: to pass closed folders.
    return [*RIGHTS, *as_person(person, [sys.executable])[1:]]


@cache
def environment() -> dict[str, str]:
    """Our packages for any interpreter of this version; the link is how `src` gets its name."""
    links = Path(tempfile.mkdtemp(prefix="guests-"))
    atexit.register(shutil.rmtree, links)
    links.chmod(0o755)
    (links / "postledger").symlink_to(Path(postledger.__path__[0]))
    site = Path(asyncpg.__path__[0]).parent
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{links}{os.pathsep}{site}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


class Guest:
    """One process inside `running(data)`."""

    def __init__(self, process: asyncio.subprocess.Process, said: str) -> None:
        self._process = process
        self.said = said
        """The DSN, or the error it ended with."""

    @classmethod
    async def enter(cls, data: Path, person: str) -> Self:
        process = await cls.send(data, person)
        assert process.stdout is not None
        return cls(process, (await process.stdout.readline()).decode().strip())

    @staticmethod
    async def send(data: Path, person: str) -> asyncio.subprocess.Process:
        """Only started: it may still be at the door."""
        return await asyncio.create_subprocess_exec(
            *python(person),
            "-c",
            GUEST,
            str(data),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            cwd="/",
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    async def leave(self) -> int:
        await self._process.communicate(b"\n")
        assert self._process.returncode is not None
        return self._process.returncode

    async def interrupt(self) -> int:
        """Ctrl-C: the signal goes to the whole process group."""
        os.killpg(self.pid, signal.SIGINT)
        return await self._process.wait()

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


def server_pid(data: Path) -> int:
    note = read_postmaster(data / "pgdata")
    assert note is not None, "there is no server"
    return note.pid


def is_stopped(data: Path) -> bool:
    return is_free(data / "server.lock") and not (data / "pgdata" / "postmaster.pid").exists()
