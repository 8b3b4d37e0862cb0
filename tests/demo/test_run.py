"""The command `demo`: the main job on a sample, by the counts it must come to, and what it leaves behind."""

import asyncio
import csv
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE

import orjson
import pytest

from postledger.database import Database
from postledger.demo.findings import compare
from postledger.demo.people import LEAST, Cast
from postledger.embedded.lock import is_free
from postledger.projections.verify import verify
from tests.eventually import eventually

PEOPLE = str(LEAST)


@asynccontextmanager
async def demo(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-P", "-m", "postledger", "demo", "--recipients", PEOPLE, *arguments)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSTLEDGER_")}
    running = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment)
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.communicate()


async def finished(running: asyncio.subprocess.Process) -> tuple[int, str, str]:
    output, errors = await running.communicate()
    assert running.returncode is not None
    return running.returncode, output.decode(), errors.decode()


async def until_sending(running: asyncio.subprocess.Process) -> None:
    assert running.stdout is not None
    async for line in running.stdout:
        if line.startswith(b'campaign "'):
            return
    raise AssertionError("it ended before it sent anything")


def processes_of(folder: Path) -> list[str]:
    """Command lines in which the folder stands, our own excepted."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(folder) in command:
            found.append(command)
    return found


async def test_every_count_is_the_expected_one(database: str, tmp_path: Path) -> None:
    async with demo("--json", "--database", database, "--data", str(tmp_path)) as running:
        code, output, errors = await finished(running)
    assert code == 0, errors
    found = orjson.loads(output)
    counts = {line["what"]: (line["expected"], line["actual"]) for line in found["counts"]}
    assert all(expected == actual for expected, actual in counts.values())
    assert counts["sent"][1] == LEAST - 5
    assert counts["failed"][1] == LEAST // 50
    assert counts["mails at the receiving server"][1] == LEAST - 4
    assert found["good"] is True
    assert found["verify"] == {"equal": True, "checked": LEAST, "total": LEAST, "differences": [], "unsealed": 0}
    assert [event["type"] for event in found["history"]["items"]] == [
        *("Queued", "Claimed", "OutcomeUnknown", "Requeued", "Claimed", "Sent"),
    ]
    assert found["history"]["copies"] == 2
    await check_that_changes_are_seen(database, tmp_path, found["campaign"])


async def check_that_changes_are_seen(database: str, folder: Path, campaign: dict[str, str]) -> None:
    """A mail too few or too many at the server is found, whoever it is for."""
    log = folder / "demo" / campaign["name"] / "received.jsonl"
    copies = [orjson.loads(line)["recipient"] for line in log.read_bytes().splitlines()]
    cast = Cast(LEAST, domain=f"{campaign['name']}.example")
    changes = {
        "missing": copies[1:],
        "more": [*copies, cast.person(1).email],
        "elsewhere": [*copies[1:], cast.suppressed.email],
        "stranger": [*copies[1:], "nobody@else.example"],
    }
    async with Database(database).connection() as conn:
        for kind, changed in {"same": copies, **changes}.items():
            counted = {address: changed.count(address) for address in changed}
            lines = await compare(conn, int(campaign["id"]), cast, counted)
            assert all(line.right for line in lines) == (kind == "same"), kind


async def test_it_shows_a_newcomer_what_happened_and_leaves_nothing_running(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with demo("--data", str(data)) as running:
        code, output, errors = await finished(running)
    assert code == 0, errors
    for words in ("postledger send", "450", "550 5.1.1", "OutcomeUnknown", "resend", "equal: 200 recipients"):
        assert words in output
    assert "NO" not in output.split()
    assert processes_of(data) == []
    assert is_free(data / "server.lock")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
async def test_stopped_on_the_way_it_leaves_nothing_running(ending: signal.Signals, tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with demo("--data", str(data)) as running:
        await until_sending(running)
        assert len(processes_of(data)) > 1
        running.send_signal(ending)
        code, _, errors = await finished(running)
    assert code == 3, errors
    assert "Traceback" not in errors
    assert processes_of(data) == []
    assert is_free(data / "server.lock")


async def test_stopped_on_the_way_it_leaves_nothing_to_do(database: str, tmp_path: Path) -> None:
    async with demo("--database", database, "--data", str(tmp_path)) as running:
        await until_sending(running)
        running.send_signal(signal.SIGINT)
        code, _, errors = await finished(running)
    assert code == 3, errors
    assert "another run is another sample" in errors
    assert "the same command again" not in errors
    async with Database(database).connection() as conn:
        assert await conn.fetchval("SELECT status FROM campaigns") == "cancelled"
        assert await conn.fetchval("SELECT count(*) FROM recipient_queue WHERE status IN ('pending', 'sending')") == 0
        assert (await verify(conn, None)).equal


async def test_killed_it_takes_its_mail_server_along(database: str, tmp_path: Path) -> None:
    async with demo("--database", database, "--data", str(tmp_path)) as running:
        await until_sending(running)
        assert any("receiver" in command for command in processes_of(tmp_path))
        running.kill()
        await running.communicate()

    def nobody_is_left() -> None:
        assert processes_of(tmp_path) == []

    await eventually(nobody_is_left)


async def test_fewer_people_than_fates_are_refused(tmp_path: Path) -> None:
    async with demo("--data", str(tmp_path / "data"), "--recipients", str(LEAST - 1)) as running:
        code, _, errors = await finished(running)
    assert code == 64
    assert str(LEAST) in errors
    assert not (tmp_path / "data").exists()


def test_the_people_meet_every_fate_and_none_two(tmp_path: Path) -> None:
    cast = Cast(2000, domain="demo.example")
    assert {tag: cast.tagged(tag) for tag in ("busy", "gone", "cut-before-dot", "cut-after-dot")} == {
        "busy": 100,
        "gone": 40,
        "cut-before-dot": 20,
        "cut-after-dot": 10,
    }
    assert cast.suppressed.tag == ""
    assert sum(mails for _, mails in cast.mails()) == 2000 - 40 - 1 + 10
    cast.write(tmp_path / "people.csv")
    with (tmp_path / "people.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2002
    assert len({row["email"].lower() for row in rows}) == 2001
