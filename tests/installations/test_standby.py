"""A standby: what may be read there, and what is said where something would be written."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from postledger.embedded.accounts import account_for
from tests.cli.conftest import Desk, desk
from tests.servers import PrivateServer, watched

__all__ = ["desk"]


def copied(primary: PrivateServer, pgdata: Path) -> None:
    command = [primary.bin / "pg_basebackup", "-d", primary.admin_dsn, "-D", pgdata, "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(command, check=True, capture_output=True)
    account = account_for(pgdata)
    for folder, _, names in os.walk(pgdata):
        for path in (folder, *(f"{folder}/{name}" for name in names)):
            os.chown(path, account.uid, account.gid)


@contextmanager
def standby_of(primary: PrivateServer, home: Path) -> Iterator[PrivateServer]:
    """As of now; it would follow the primary if it could reach that."""
    home.mkdir()
    own = PrivateServer(home, hot_standby="on")
    copied(primary, home / "pgdata")
    with watched(home):
        asyncio.run(own.start())
        try:
            yield own
        finally:
            asyncio.run(own.stop("immediate"))


@pytest.fixture
def standby(desk: Desk, server: PrivateServer, tmp_path: Path) -> Iterator[PrivateServer]:
    """Of a server where a campaign has been sent."""
    assert desk.run(*desk.shell.letter_to(desk.shell.people(3), name="spring")).code == 0
    with standby_of(server, tmp_path / "standby") as own:
        yield own


def test_a_standby_is_read_and_never_written_to(desk: Desk, standby: PrivateServer) -> None:
    letter = desk.shell.letter_to("people.csv", name="spring")
    where = {"POSTLEDGER_DATABASE": standby.dsn_of(urlsplit(desk.shell.database).path[1:])}
    for reads in (
        ("campaign", "list"),
        ("campaign", "recipients", "spring"),
        ("audit", "history", "spring", "k1"),
        ("audit", "replay", "spring"),
        ("audit", "verify"),
    ):
        ran = desk.run(*reads, "--json", **where)
        assert ran.code == 0, (reads, ran.err)
    for writes in (
        letter,
        (*letter, "--dry-run"),
        ("contacts", "import", "--list", "digest", "--to", "people.csv"),
        ("campaign", "cancel", "spring"),
        ("suppress", "p1@example.org"),
        ("work", "--until-idle"),
        ("migrate",),
    ):
        ran = desk.run(*writes, **where)
        assert ran.code == 69, (writes, ran.err)
        assert ran.err.count("name the primary, not a standby") == 1, (writes, ran.err)
        assert "Traceback" not in ran.err
    looked = desk.run("doctor", "--json", **where)
    assert (looked.code, looked.document["checks"][-1]["name"]) == (69, "notifications")
