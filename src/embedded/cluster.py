"""The data folder of the private PostgreSQL: made in one step, with its settings."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigurationError, PostledgerError, UnavailableError
from .accounts import Account, entrance, hand_over, run
from .binaries import major

# Appended to postgresql.conf once; from then on the file is the user's to change. Durability stays as it
# comes. The last three keep addresses out of the log: a failed statement would appear there with its values.
SETTINGS = """
# Postledger
max_connections = 200
shared_buffers = 256MB
max_wal_size = 2GB
timezone = 'UTC'
log_timezone = 'UTC'
listen_addresses = ''
unix_socket_permissions = 0700
log_error_verbosity = terse
log_min_error_statement = panic
log_parameter_max_length_on_error = 0
"""


def create_cluster(pgdata: Path, bin_: Path, account: Account, keep: int) -> None:
    """initdb beside the final place, then rename: a kill in between leaves nothing half-made in use.

    `keep` is the lock that initdb shares; as long as it runs nobody else begins.
    """
    fresh = pgdata.with_name(pgdata.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    hand_over(fresh, account)
    with entrance(fresh, account) as way:
        command: list[str | Path] = [bin_ / "initdb", "-D", way.path, *_options(major(bin_, account))]
        done = run(command, account, keep=[keep, *way.handles])
    if done.returncode != 0:
        raise explain(done.stdout, pgdata)
    with (fresh / "postgresql.conf").open("a") as conf:
        conf.write(SETTINGS)
        conf.flush()
        os.fsync(conf.fileno())
    fresh.rename(pgdata)


def _options(version: int) -> list[str]:
    """Text in the order of code points on every system, with Unicode's upper and lower case."""
    locale = (
        ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if version >= 17
        else ["--locale=C.UTF-8"]
    )
    common = [
        "--username=postgres",
        "--auth-local=trust",
        "--auth-host=reject",
        "--encoding=UTF8",
        "--data-checksums",
        "--no-instructions",
    ]
    return [*common, *locale]


def check_version(pgdata: Path, bin_: Path, account: Account) -> None:
    """Raise ConfigurationError for data that another major version wrote."""
    found, have = (pgdata / "PG_VERSION").read_text().strip(), major(bin_, account)
    if found != str(have):
        raise ConfigurationError(
            f"{pgdata} holds data of PostgreSQL {found}, but {have} is installed: "
            f"move it with pg_dump and PostgreSQL {found}, or name another folder with --data"
        )


@contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """What the file system refuses, in one line with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space(where) from None
        raise ConfigurationError(
            f"the data folder {where} cannot be used ({os.strerror(error.errno or 0)}): "
            "name another with --data or POSTLEDGER_DATA"
        ) from None


def no_space(where: Path) -> UnavailableError:
    return UnavailableError(f"no space left for the database in {where}: free some or name another folder with --data")


def explain(output: str, where: Path) -> PostledgerError:
    """One line out of what initdb or the server wrote."""
    if "No space left on device" in output:
        return no_space(where)
    marks = ("FATAL:", "PANIC:", "error:", "LOG:")
    lines = [line for line in output.splitlines() if any(mark in line for mark in marks[:3])]
    last = lines[-1] if lines else (output.strip().splitlines() or ["it said nothing"])[-1]
    if last.endswith("contains errors"):
        last = output[: output.index(last)].splitlines()[-1]  # which one it is
    reason = next((last.split(mark, 1)[1].strip() for mark in marks if mark in last), last.strip())
    return UnavailableError(f"the embedded PostgreSQL in {where} did not start: {reason}")
