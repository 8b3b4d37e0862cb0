"""`send` stopped, killed, doubled, and left alone by its server: nothing is lost, nobody is mailed twice."""

import asyncio
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import asyncpg
import pytest

from postledger.cli import sending
from postledger.workers import worker
from tests.eventually import eventually
from tests.servers import PrivateServer

from .conftest import Desk, Ran, Shell

PEOPLE = 600


def mails(shell: Shell) -> int:
    return len(list((shell.folder / "out").glob("*.eml")))


def some_are_out(shell: Shell) -> None:
    assert mails(shell) > 5


async def begun(shell: Shell) -> asyncio.subprocess.Process:
    """A `send` that has written its first mails, one at a time."""
    shell.people(PEOPLE)
    letter = shell.letter_to("people.csv", via=f"file://{shell.folder}/out", concurrency="1", name="spring")
    process = await shell.start(*letter)
    await eventually(lambda: some_are_out(shell), within=20)
    assert process.returncode is None
    return process


async def same_again(shell: Shell) -> Ran:
    return await shell.send("people.csv", "--json", via=f"file://{shell.folder}/out", name="spring")


async def test_ctrl_c_and_the_same_command_again(shell: Shell) -> None:
    process = await begun(shell)
    process.send_signal(signal.SIGINT)
    stopped = await shell.ended(process)
    assert stopped.code == 3
    assert "run the same command again" in stopped.err
    assert "Traceback" not in stopped.err
    before = mails(shell)
    assert before < PEOPLE
    again = await same_again(shell)
    assert (again.code, again.document["counts"]["sent"]) == (0, PEOPLE)
    assert mails(shell) == PEOPLE
    await shell.verified()


async def test_killed_and_the_same_command_again(shell: Shell, conn: asyncpg.Connection) -> None:
    process = await begun(shell)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    again = await same_again(shell)
    assert (again.code, again.document["counts"]["sent"], again.document["audience"]) == (0, PEOPLE, PEOPLE)
    assert mails(shell) == PEOPLE
    attempts = "SELECT count(*) FROM postledger.events WHERE type = 'OutcomeUnknown'"
    assert await conn.fetchval(attempts) <= 1
    await shell.verified()


async def test_killed_while_people_are_read_in(shell: Shell, conn: asyncpg.Connection) -> None:
    shell.people(20_000)
    process = await shell.start(*shell.letter_to("people.csv", name="spring"))

    async def some_are_staged() -> None:
        assert await conn.fetchval("SELECT coalesce(sum(rows), 0) FROM postledger.imports") > 0

    await eventually(some_are_staged, within=20)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    again = await shell.send("people.csv", "--json", name="spring")
    assert (again.code, again.document["counts"]["sent"]) == (0, 20_000)
    assert await conn.fetchval("SELECT count(*) FROM postledger.import_rows") == 0
    await shell.verified()


async def test_two_of_the_same_name_at_once(shell: Shell, conn: asyncpg.Connection) -> None:
    shell.people(300)
    letter = shell.letter_to("people.csv", via=f"file://{shell.folder}/out", name="spring")
    ran = await asyncio.gather(shell.run(*letter, "--json"), shell.run(*letter, "--json"))
    assert [one.code for one in ran] == [0, 0]
    assert sorted(one.document["report"]["accepted"] for one in ran) == [0, 300]
    assert len({one.document["id"] for one in ran}) == 1
    assert all(one.document["counts"]["sent"] == 300 for one in ran)
    assert await conn.fetchval("SELECT count(*) FROM postledger.events WHERE type = 'Claimed'") == 300
    await shell.verified()


async def test_paused_by_somebody_else_meanwhile(shell: Shell) -> None:
    process = await begun(shell)
    assert (await shell.run("campaign", "pause", "spring")).code == 0
    ran = await shell.ended(process)
    assert ran.code == 3
    assert "paused (operator)" in ran.err
    await shell.verified()


async def test_cancelled_by_somebody_else_meanwhile(shell: Shell) -> None:
    process = await begun(shell)
    assert (await shell.run("campaign", "cancel", "spring")).code == 0
    ran = await shell.ended(process)
    assert ran.code == 1
    shown = (await shell.run("campaign", "show", "spring", "--json")).document
    assert shown["counts"]["sent"] == mails(shell)
    assert shown["counts"]["sent"] + shown["counts"]["cancelled"] == PEOPLE
    await shell.verified()


async def test_a_worker_ends_in_order(shell: Shell) -> None:
    process = await shell.start("work")
    assert process.stderr is not None
    assert b"working" in await process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    ran = await shell.ended(process)
    assert ran.code == 0
    assert "stopped" in ran.err


def test_the_server_is_shut_down_meanwhile(own_server: PrivateServer, offline: Desk) -> None:
    """It is given some time to come back; here, one second."""
    shell = Shell(offline.shell.folder, own_server.dsn)
    shell.people(PEOPLE)
    offline.monkeypatch.setattr(sending, "GIVE_UP", 1.0)
    offline.monkeypatch.setattr(sending, "LOOK_AGAIN", 0.5)
    offline.monkeypatch.setattr(worker, "LAST_WORDS", 0.5)
    letter = shell.letter_to("people.csv", via=f"file://{shell.folder}/out", concurrency="1", grace="1s", name="spring")

    async def stop() -> None:
        await eventually(lambda: some_are_out(shell), within=20)
        await own_server.stop()

    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(asyncio.run, stop())
        ran = offline.run(*letter, "--database", own_server.dsn)
        stopping.result()
    assert ran.code == 69
    assert "Traceback" not in ran.err
    assert ran.err.splitlines()[-1].startswith("postledger: the database")
    assert "run the same command again" in ran.err
    asyncio.run(own_server.start())
    shown = offline.run("campaign", "show", "spring", "--json", "--database", own_server.dsn).document
    counts = shown["counts"]
    assert counts["sent"] <= mails(shell) <= counts["sent"] + counts["sending"]
    assert counts["sending"] <= 1
    assert sum(counts.values()) == PEOPLE
    assert offline.run("audit", "verify", "--database", own_server.dsn).code == 0


@asynccontextmanager
async def silent_relay() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A relay that says nothing any more once it has a mail; the event tells that it has."""
    got_mail = asyncio.Event()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 relay.example\r\n")
        while line := await reader.readline():
            if line == b".\r\n":
                got_mail.set()
            elif not got_mail.is_set() and line[:4] in (b"EHLO", b"MAIL", b"RCPT", b"RSET", b"QUIT", b"DATA"):
                writer.write(b"354 go on\r\n" if line[:4] == b"DATA" else b"250 fine\r\n")
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    async with server:
        yield f"smtp://127.0.0.1:{server.sockets[0].getsockname()[1]}?starttls=off", got_mail


@pytest.mark.parametrize("command", ["send", "work"])
async def test_a_second_signal_leaves_at_once(shell: Shell, command: str) -> None:
    shell.people(1)
    async with silent_relay() as (url, got_mail):
        if command == "send":
            process = await shell.start(*shell.letter_to("people.csv", via=url))
        else:
            await shell.send("people.csv", "--no-wait", via=url)
            process = await shell.start("work")
        async with asyncio.timeout(20):
            await got_mail.wait()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        ran = await shell.ended(process)
    assert ran.code == 3
    assert ran.err.splitlines()[-1].startswith("postledger: left at once")


async def test_what_the_relay_still_owes_when_the_grace_is_over(shell: Shell) -> None:
    shell.people(1)
    async with silent_relay() as (url, got_mail):
        process = await shell.start(*shell.letter_to("people.csv", via=url, grace="1s", unknown="hold"), "--json")
        async with asyncio.timeout(20):
            await got_mail.wait()
        process.send_signal(signal.SIGTERM)
        ran = await shell.ended(process)
    assert (ran.code, ran.document["counts"]["unknown"]) == (3, 1)
    await shell.verified()


async def test_output_that_nobody_reads_on(shell: Shell) -> None:
    shell.people(3000)
    await shell.send("people.csv")
    process = await shell.start("audit", "replay", "1")
    assert process.stdout is not None
    await process.stdout.readline()
    process.stdout._transport.close()  # as `head` does it
    assert process.stderr is not None
    assert await process.stderr.read() == b""
    assert await process.wait() == 128 + signal.SIGPIPE
