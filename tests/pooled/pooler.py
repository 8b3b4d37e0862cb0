"""A pgbouncer before the tests' server, in transaction mode unless a test says otherwise."""

import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from urllib.parse import parse_qs, urlencode, urlsplit

from attrs import frozen

from postledger.embedded.accounts import account_for, entrance, hand_over
from tests.eventually import eventually
from tests.servers import PrivateServer

PGBOUNCER = Path(which("pgbouncer") or "/usr/sbin/pgbouncer")
"""From the PATH, or where Debian's package puts it, which is not on everybody's."""

LOGIN = "pooled_app"


@frozen
class Pooler:
    """A running one, in a folder of its own."""

    folder: Path

    def dsn(self, database: str, login: str = LOGIN) -> str:
        """The way to the database of that DSN, through the pooler."""
        way = urlencode({"host": str(self.folder), "port": "6432", "sslmode": "disable"})
        return f"postgresql://{login}@/{urlsplit(database).path[1:]}?{way}"


@asynccontextmanager
async def pooler(server: PrivateServer, *, size: int = 3, **settings: str) -> AsyncIterator[Pooler]:
    """`size`: how many sessions of the server all clients of a login and database share."""
    with _running(server, {"default_pool_size": str(size), **settings}) as running:
        await eventually(lambda: _listens(running.folder / ".s.PGSQL.6432"))
        yield running


@contextmanager
def _running(server: PrivateServer, settings: Mapping[str, str]) -> Iterator[Pooler]:
    sockets = Path(parse_qs(urlsplit(server.admin_dsn).query)["host"][0])
    account = account_for(sockets)
    with TemporaryDirectory(prefix="postledger-pooler-") as name, entrance(sockets, account) as way:
        folder = Path(name)
        folder.chmod(0o755)
        options = {
            "listen_addr": "",
            "unix_socket_dir": name,
            "pool_mode": "transaction",
            "auth_type": "trust",
            "auth_file": f"{name}/users",
            "logfile": "",
            **settings,
        }
        lines = "".join(f"{option} = {value}\n" for option, value in options.items())
        (folder / "ini").write_text(f"[databases]\n* = host={way.path} port=5432\n[pgbouncer]\n{lines}")
        (folder / "users").write_text("".join(f'"{login}" ""\n' for login in (LOGIN, "stranger", "postgres")))
        hand_over(folder, account)
        process = subprocess.Popen(
            [PGBOUNCER, "--quiet", folder / "ini"],
            user=account.uid,
            group=account.gid,
            extra_groups=[],
            pass_fds=way.handles,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Pooler(folder)
        finally:
            process.terminate()
            process.wait()


def _listens(path: Path) -> None:
    assert path.is_socket()
