"""One server, several processes."""

import asyncio
import os
import signal
from pathlib import Path

import asyncpg
import pytest

from tests.embedded.guests import Guest, is_stopped, server_pid
from tests.eventually import eventually


async def ask(dsn: str, question: str = "SELECT 7"):
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetchval(question)
    finally:
        await conn.close()


async def test_a_server_runs_while_it_is_used_and_keeps_what_it_was_told(data: Path, person: str):
    guest = await Guest.enter(data, person)
    await ask(guest.said, "CREATE TABLE kept AS SELECT 7 AS n")
    assert await guest.leave() == 0
    assert is_stopped(data)
    guest = await Guest.enter(data, person)
    assert await ask(guest.said, "SELECT n FROM kept") == 7
    await guest.leave()


async def test_the_last_one_out_stops_it(data: Path, person: str):
    first = await Guest.enter(data, person)
    second = await Guest.enter(data, person)
    assert first.said == second.said
    await first.leave()
    assert await ask(second.said) == 7
    await second.leave()
    assert is_stopped(data)
    with pytest.raises(OSError, match="No such file"):
        await asyncpg.connect(second.said)


async def test_ten_at_once_in_an_empty_folder(data: Path, person: str):
    guests = await asyncio.gather(*(Guest.enter(data, person) for _ in range(10)))
    assert len({guest.said for guest in guests}) == 1
    assert await ask(guests[0].said) == 7
    assert await asyncio.gather(*(guest.leave() for guest in guests)) == [0] * 10
    assert is_stopped(data)


async def test_guests_may_come_while_the_last_one_leaves(data: Path, person: str):
    async def visits():
        for _ in range(2):
            guest = await Guest.enter(data, person)
            assert await ask(guest.said) == 7
            assert await guest.leave() == 0

    await asyncio.gather(*(visits() for _ in range(4)))
    assert is_stopped(data)


async def test_a_server_left_behind_is_taken_over(data: Path, person: str):
    first = await Guest.enter(data, person)
    left = server_pid(data)
    await first.kill()
    assert await ask(first.said) == 7
    second = await Guest.enter(data, person)
    assert server_pid(data) == left
    await second.leave()
    assert is_stopped(data)


async def test_one_killed_guest_does_not_take_the_server_from_the_others(data: Path, person: str):
    first, second = [await Guest.enter(data, person) for _ in range(2)]
    await first.kill()
    assert await ask(second.said) == 7
    await second.leave()
    assert is_stopped(data)


async def test_killed_while_the_folder_is_being_made(data: Path, person: str):
    process = await Guest.send(data, person)
    await eventually(lambda: _exists(data / "pgdata.new"))
    process.kill()
    await process.communicate()
    guest = await Guest.enter(data, person)
    assert await ask(guest.said) == 7
    await guest.leave()


def _exists(path: Path) -> None:
    assert path.exists()


async def test_a_killed_server_recovers_for_the_next_guest(data: Path, person: str):
    first = await Guest.enter(data, person)
    await ask(first.said, "CREATE TABLE kept AS SELECT 7 AS n")
    killed = server_pid(data)
    os.kill(killed, signal.SIGKILL)
    second = await Guest.enter(data, person)
    assert server_pid(data) != killed
    assert await ask(second.said, "SELECT n FROM kept") == 7
    await second.leave()
    await first.leave()
    assert is_stopped(data)


async def test_ctrl_c_reaches_the_guest_and_not_the_server(data: Path, person: str):
    first, second = [await Guest.enter(data, person) for _ in range(2)]
    assert await first.interrupt() == 130
    assert await ask(second.said) == 7
    assert await second.interrupt() == 130
    assert is_stopped(data)


async def test_the_folder_may_go_away_under_a_running_server(data: Path, person: str):
    guest = await Guest.enter(data, person)
    pid, gone = server_pid(data), data.with_name("gone")
    os.rename(data, gone)
    assert await guest.leave() == 0
    os.kill(pid, signal.SIGINT)
    await eventually(lambda: _stopped(gone))


def _stopped(data: Path) -> None:
    assert is_stopped(data)
