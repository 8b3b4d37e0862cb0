"""How loops run, wait and end."""

import asyncio

import pytest

from postledger.database import Connection
from postledger.workers.link import Backoff, Link, LinkLost
from postledger.workers.loops import first_of, forever, to_the_end, within
from tests.eventually import eventually
from tests.workers.mailing import Mailing


async def test_an_error_in_one_step_ends_no_loop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("postledger.workers.loops.PAUSE", 0.0)
    steps = 0

    async def step() -> None:
        nonlocal steps
        steps += 1
        await asyncio.sleep(0)
        if steps < 3:
            raise ValueError("a fault of ours")

    loop = asyncio.create_task(forever(step, "test"))
    await eventually(lambda: _true(steps > 5))
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop
    assert capsys.readouterr().out.count("ValueError: a fault of ours") == 2


async def test_first_of_returns_for_any_event() -> None:
    one, two = asyncio.Event(), asyncio.Event()
    waiting = asyncio.create_task(first_of(one, two, within=60))
    await asyncio.sleep(0)
    assert not waiting.done()
    two.set()
    await waiting
    await first_of(one, two, within=60)  # at once: an event that was set before the wait is no less set


async def test_first_of_returns_when_the_time_is_over() -> None:
    await first_of(asyncio.Event(), within=0.0)
    await first_of(asyncio.Event(), within=-1.0)
    await first_of(asyncio.Event(), within=0.01)


async def test_within_tells_whether_it_came_true() -> None:
    assert await within(0.0, lambda: True)
    assert not await within(0.0, lambda: False)
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, done.set)
    assert await within(10.0, done.is_set)


async def test_work_goes_to_its_end_whatever_cancels_the_caller() -> None:
    gone_on = asyncio.Event()
    ended = False

    async def work() -> None:
        nonlocal ended
        await gone_on.wait()
        ended = True

    caller = asyncio.create_task(to_the_end(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        caller.cancel()
    gone_on.set()
    await asyncio.wait([caller])
    assert ended


async def test_work_that_fails_at_its_end_says_so() -> None:
    async def work() -> None:
        await asyncio.sleep(0.01)
        raise ValueError("a fault of ours")

    caller = asyncio.create_task(to_the_end(work()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(ValueError, match="a fault of ours"):
        await caller


async def test_a_link_is_made_anew_after_each_loss(mailing: Mailing, owner: Connection) -> None:
    link = Link(mailing.database, "test")
    pids = set()

    async def call_and_be_killed() -> None:
        async with link.use() as conn:
            pids.add(conn.get_server_pid())
            await owner.execute("SELECT pg_terminate_backend($1)", conn.get_server_pid())
            await conn.execute("SELECT pg_sleep(60)")

    for _ in range(3):
        with pytest.raises(LinkLost):
            await call_and_be_killed()
    assert len(pids) == 3
    await link.close()


async def test_a_link_that_is_left_in_mid_call_is_not_used_again(mailing: Mailing) -> None:
    """Its call may still be under way; the next one must not get that one's answer."""
    link = Link(mailing.database, "test")

    async def call() -> None:
        async with link.use() as conn:
            await conn.execute("SELECT pg_sleep(60)")

    calling = asyncio.create_task(call())
    await eventually(lambda: _true(link._conn is not None))
    calling.cancel()
    await asyncio.wait([calling])
    async with link.use() as conn:
        assert await conn.fetchval("SELECT 7") == 7
    await link.close()


async def test_a_refusal_of_the_server_is_not_a_loss(mailing: Mailing) -> None:
    link = Link(mailing.database, "test")
    async with link.use() as conn:
        pid = conn.get_server_pid()
    with pytest.raises(Exception, match="division by zero"):
        async with link.use() as conn:
            await conn.execute("SELECT 1/0")
    async with link.use() as conn:
        assert conn.get_server_pid() == pid
    await link.close()


async def test_waits_between_repeats_grow_up_to_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("postledger.workers.link.asyncio.sleep", note)
    backoff = Backoff()
    for _ in range(8):
        await backoff.wait()
    backoff.reset()
    await backoff.wait()
    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 0.05]


def _true(found: bool) -> None:
    assert found
