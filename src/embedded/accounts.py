"""Who the server runs as, and running its programs as that user."""

import os
import pwd
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from ..errors import ConfigurationError

# Nothing of the caller's environment reaches the server: no PG* variables, no locale, no LD_LIBRARY_PATH.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
HANDLES = Path("/proc/self/fd")


@frozen
class Account:
    """The user and group that own the server's processes and files."""

    uid: int
    gid: int


def account_for(pgdata: Path) -> Account:
    """Ourselves; PostgreSQL refuses root, so root hands over to the data's owner, postgres or nobody."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    if pgdata.exists() and (owner := pgdata.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid)
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise ConfigurationError(
        "PostgreSQL does not run as root and there is neither a user postgres nor nobody: "
        "add one (useradd --system postgres) or run as an ordinary user"
    )


def run(
    command: Sequence[str | Path],
    account: Account,
    *,
    output: int = subprocess.PIPE,
    keep: Sequence[int] = (),
) -> subprocess.CompletedProcess[str]:
    """Run to its end as that user, in a session of its own: a Ctrl-C meant for us is not for the database."""
    other = account.uid != os.geteuid()
    return subprocess.run(
        command,
        user=account.uid if other else None,
        group=account.gid if other else None,
        extra_groups=[] if other else None,
        cwd="/",
        env=ENVIRONMENT,
        umask=0o077,
        start_new_session=True,
        pass_fds=keep,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


def hand_over(path: Path, account: Account) -> None:
    """Make it that user's own."""
    if account.uid != os.geteuid():
        os.chown(path, account.uid, account.gid)


def can_enter(folder: Path, account: Account) -> bool:
    """Asked of the system itself, since modes alone do not tell (ACLs, mounts)."""
    return run(["/bin/sh", "-c", 'cd -- "$1"', "sh", folder], account).returncode == 0


@frozen
class Entrance:
    """A folder's name for the processes of an account, and the handles they must inherit to use it."""

    path: Path
    handles: tuple[int, ...] = ()


@contextmanager
def entrance(folder: Path, account: Account) -> Iterator[Entrance]:
    """Let a process into a folder of its own below one that is closed to it, as /root is to everybody.

    Through an open handle it gets in without passing the parents. The handle's name serves for odd names too:
    pg_ctl hands the folder's to a shell, and the server writes it as one line of a file.
    """
    if is_plain(folder) and can_enter(folder, account):
        yield Entrance(folder)
        return
    if not HANDLES.exists():
        raise ConfigurationError(
            f"{str(closed_parent(folder, account))!r} cannot be entered by the user of the database server "
            f"(uid {account.uid}): name another folder with --data or POSTLEDGER_DATA"
        )
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield Entrance(HANDLES / str(handle), (handle,))
    finally:
        os.close(handle)


def is_plain(path: Path) -> bool:
    """Whether the path means itself in a shell's double quotes, a list of folders and a file of lines."""
    return str(path).isprintable() and not set(str(path)) & set(",\"'\\`$")


def closed_parent(folder: Path, account: Account) -> Path:
    """The topmost folder on the way that this user cannot enter."""
    return next((up for up in [*reversed(folder.parents), folder] if not can_enter(up, account)), folder)
