"""A standby: what may be read there, and what is said where something would be written."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from postledger.embedded.accounts import account_for
from tests.cli.conftest import Desk, desk
from tests.eventually import eventually
from tests.servers import PrivateServer, watched

__all__ = ["desk"]


def copied(primary: PrivateServer, pgdata: Path) -> None:
    command = [primary.bin / "pg_basebackup", "-d", primary.admin_dsn, "-D", pgdata, "-R", "-X", "stream", "-c", "fast"]
    subprocess.run(command, check=True, capture_output=True)
    account = account_for(pgdata)
    for folder, _, names in os.walk(pgdata):
        for path in (folder, *(f"{folder}/{name}" for name in names)):
            os.chown(path, account.uid, account.gid)


@pytest.fixture
async def standby(server: PrivateServer, tmp_path: Path) -> AsyncIterator[PrivateServer]:
    """A copy of the tests' server that follows it; its sockets are its own."""
    home = tmp_path / "standby"
    home.mkdir()
    own = PrivateServer(home, hot_standby="on")
    await asyncio.to_thread(copied, server, home / "pgdata")
    with watched(home):
        await own.start()
        yield own
        await own.stop("immediate")


async def followed(dsn: str) -> None:
    """The last word of the campaign has arrived."""
    conn = await asyncpg.connect(dsn, server_settings={"default_transaction_isolation": "read committed"})
    try:
        assert await conn.fetchval("SELECT pg_is_in_recovery()")
        assert await conn.fetchval("SELECT status = 'completed' FROM postledger.campaigns WHERE name = 'spring'")
    finally:
        await conn.close()


def test_a_standby_is_read_and_never_written_to(desk: Desk, standby: PrivateServer) -> None:
    letter = desk.shell.letter_to(desk.shell.people(3), name="spring")
    assert desk.run(*letter).code == 0
    there = standby.dsn_of(urlsplit(desk.shell.database).path[1:])
    asyncio.run(eventually(lambda: followed(there), within=30))
    where = {"POSTLEDGER_DATABASE": there}
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
