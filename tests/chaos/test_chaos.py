"""Workers that are killed, stopped and cut off, servers that are restarted: nobody is lost or mailed twice unsaid.

Recovery times are printed and recorded as properties of the tests, not asserted: other things run on this machine too.
"""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import asyncpg
import pytest

from postledger.embedded.server import Mode
from tests.chaos.processes import Child, Crew, crew
from tests.chaos.run import Ending, Run
from tests.servers import PrivateServer

SIZE = 400
LEASE = 3.0

Record = Callable[[float], None]


@pytest.fixture
def record(record_property: Callable[[str, object], None]) -> Record:
    def note(seconds: float) -> None:
        record_property("recovered_in", seconds)
        print(f"recovered in {seconds:.2f} s")

    return note


@pytest.fixture
async def hired(database: str, tmp_path: Path) -> AsyncIterator[Crew]:
    async with crew(database, tmp_path, lease=LEASE) as ready:
        yield ready


async def finished(run: Run, hired: Crew) -> Ending:
    """The campaign is over, every worker that lives ends in order, and all that must hold does."""
    await run.until_completed()
    await hired.end()
    ending = await run.ending()
    ending.check()
    return ending


async def begun(hired: Crew, workers: int, *, size: int = SIZE) -> tuple[Run, list[Child]]:
    run = Run(hired.dsn, hired.caught)
    children = await hired.start_workers(workers)
    await run.start(hired.url, size)
    await run.until_sent(size // 10)
    return run, children


async def test_one_of_three_is_killed(hired: Crew, record: Record) -> None:
    run, _ = await begun(hired, 3)
    victim = hired.worker(await run.watcher())
    await run.until_held(int(victim.said))
    await victim.kill()
    record(await run.until_free(int(victim.said)))
    hired.children.remove(victim)
    ending = await finished(run, hired)
    assert ending.unknown <= hired.concurrency  # what it had in hand, which is no more than it has slots


async def test_the_only_one_is_killed_and_another_started(hired: Crew, record: Record) -> None:
    run, (victim,) = await begun(hired, 1, size=SIZE // 2)
    await run.until_held(int(victim.said))
    await victim.kill()
    hired.children.remove(victim)
    await hired.start_worker()
    record(await run.until_free(int(victim.said)))
    await finished(run, hired)


async def test_one_is_stopped_for_longer_than_its_lease_and_comes_back(hired: Crew, record: Record) -> None:
    """What it had sent when it was stopped is told late: kept as evidence, or applied where that is still true."""
    run, _ = await begun(hired, 2)
    victim = hired.worker(await run.watcher())
    await run.until_held(int(victim.said))
    victim.send(signal.SIGSTOP)
    record(await run.until_free(int(victim.said)))
    victim.send(signal.SIGCONT)
    await finished(run, hired)


async def test_the_server_is_restarted(own_server: PrivateServer, tmp_path: Path, record: Record) -> None:
    """In order, and by force: everybody comes back, and nobody takes anybody else for dead."""
    async with crew(own_server.dsn, tmp_path) as hired:
        run, _ = await begun(hired, 2)
        modes: tuple[Mode, ...] = ("fast", "immediate")
        for mode in modes:
            await own_server.stop(mode)
            await own_server.start()
            record(await run.until_progress())
        ending = await finished(run, hired)
        assert (ending.unknown, ending.mails) == (0, SIZE)


async def test_every_session_is_killed_thirty_times(hired: Crew, owner: asyncpg.Connection) -> None:
    run, children = await begun(hired, 2)
    dice = random.Random(5)
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'postledger worker%'"
    for _ in range(30):
        await owner.fetch(query)
        await asyncio.sleep(dice.uniform(0, 0.08))
    ending = await finished(run, hired)
    assert (ending.unknown, ending.mails) == (0, SIZE)
    assert all(child.process.returncode == 0 for child in children)


async def test_workers_pause_and_come_and_go_in_order(hired: Crew) -> None:
    """One stands still for less than its lease; each finishes what it has begun and gives the rest back."""
    run, children = await begun(hired, 2)
    children[0].send(signal.SIGSTOP)
    await asyncio.sleep(LEASE / 6)
    children[0].send(signal.SIGCONT)
    for child in children:
        await hired.start_worker()
        assert await child.end() == 0
        hired.children.remove(child)
    ending = await finished(run, hired)
    assert (ending.unknown, ending.mails) == (0, SIZE)
