"""A sender's rate, given out to any number of workers as pieces of its time."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.database import Connection
from postledger.ledger import queue, senders
from postledger.ledger.queue import Lease
from postledger.ledger.senders import Rate
from postledger.projections.verify import verify
from tests.clock import NOON, set_clock, stop_clock
from tests.lab import Lab

SECOND = timedelta(seconds=1)
TENTH = timedelta(seconds=0.1)


async def sender_at(conn: Connection, rate: str | None, url: str = "null://") -> int:
    sender = await senders.keep(conn, url)
    if rate is not None:
        await senders.set_rate(conn, sender, Rate.read(rate))
    return sender


async def lease(conn: Connection, sender: int, length: timedelta = SECOND) -> Lease:
    return await queue.lease_tokens(conn, sender, length, timeout=10)


@pytest.fixture
async def noon(owner: Connection) -> None:
    await stop_clock(owner)


@pytest.mark.parametrize(
    ("text", "count", "seconds"),
    [("100/s", 100, 1), ("5000/m", 5000, 60), ("20000 / h", 20000, 3600), (" 500/d ", 500, 86400), ("1/d", 1, 86400)],
)
def test_what_is_a_rate(text: str, count: int, seconds: int) -> None:
    assert Rate.read(text) == Rate(count, timedelta(seconds=seconds))


@pytest.mark.parametrize("text", ["", "100", "100/", "/s", "0/s", "-1/s", "1.5/s", "100/week", "1000001/s", "many/s"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|between"):
        Rate.read(text)


async def test_without_a_rate_there_is_nothing_to_lease(app: Connection, noon: None) -> None:
    assert await lease(app, await sender_at(app, None)) == Lease(None, None, None, None)
    assert await app.fetchval("SELECT count(*) FROM rate_leases") == 0


async def test_pieces_follow_each_other(app: Connection, owner: Connection, noon: None) -> None:
    """The first as long as asked for; while others hold one, short ones behind it; none beyond a second ahead."""
    sender = await sender_at(app, "100/s")
    assert await lease(app, sender, SECOND / 2) == Lease(50, 0.01, 0.0, None)
    starts = [await lease(app, sender) for _ in range(11)]
    assert [one.granted for one in starts] == [5] * 11
    assert [one.starts_in for one in starts] == pytest.approx([0.5 + 0.05 * n for n in range(11)])
    refused = await lease(app, sender)
    assert (refused.granted, refused.retry_in) == (0, timedelta(seconds=0.05))
    await set_clock(owner, NOON + timedelta(seconds=0.05))
    assert (await lease(app, sender)).granted == 5


@pytest.mark.parametrize(
    ("late", "starts_in"), [(timedelta(seconds=0.08), -0.08), (timedelta(seconds=0.5), 0.0), (timedelta(days=30), 0.0)]
)
async def test_lateness_is_made_up_for_and_idleness_is_not(
    app: Connection, owner: Connection, noon: None, late: timedelta, starts_in: float
) -> None:
    sender = await sender_at(app, "100/s")
    await lease(app, sender, TENTH)
    await set_clock(owner, NOON + TENTH + late)
    found = await lease(app, sender, TENTH)
    assert (found.granted, found.starts_in) == (10, pytest.approx(starts_in))


@pytest.mark.parametrize(("rate", "each"), [("1/m", 60.0), ("500/d", 172.8), ("3/s", 1 / 3), ("1000000/s", 0.000001)])
async def test_slow_and_fast_ones(app: Connection, owner: Connection, noon: None, rate: str, each: float) -> None:
    sender = await sender_at(app, rate)
    found = await lease(app, sender, TENTH)
    assert found.each == pytest.approx(each)
    assert found.granted == max(1, round(0.1 / each - 0.4999))
    if each > 1:
        refused = await lease(app, sender)
        assert refused.granted == 0
        assert refused.retry_in == timedelta(seconds=each) - SECOND
        await set_clock(owner, NOON + timedelta(seconds=each))
        assert (await lease(app, sender)).granted == 1


async def test_another_rate_takes_effect_at_once(app: Connection, noon: None) -> None:
    sender = await sender_at(app, "1/d")
    assert (await lease(app, sender)).granted == 1
    assert (await lease(app, sender)).granted == 0
    assert await senders.set_rate(app, sender, Rate.read("10/s"))
    assert not await senders.set_rate(app, sender, Rate.read("10/s"))
    assert (await lease(app, sender)).granted == 10
    assert await senders.set_rate(app, sender, None)
    assert (await lease(app, sender)).each is None
    bodies = await app.fetch("SELECT body FROM events WHERE type = 'SenderChanged' ORDER BY version")
    assert [row["body"]["rate"] for row in bodies] == ["1/d", "10/s", "off"]
    assert (await verify(app, None)).equal


async def test_a_rate_is_half_of_nothing(owner: Connection) -> None:
    with pytest.raises(asyncpg.CheckViolationError):
        await owner.execute("INSERT INTO senders (name, url, rate_count) VALUES ('a', 'null://', 1)")


async def test_senders_have_their_own(app: Connection, noon: None) -> None:
    one, other = await sender_at(app, "1/m"), await sender_at(app, "1/m", "null://?render=1")
    assert [(await lease(app, sender)).granted for sender in (one, other, one, other)] == [1, 1, 0, 0]


async def test_nobody_waits_for_whoever_is_at_it(app: Connection, owner: Connection, noon: None) -> None:
    sender = await sender_at(app, "100/s")
    await lease(app, sender)
    async with owner.transaction():
        await owner.execute("SELECT FROM rate_leases FOR UPDATE")
        refused = await lease(app, sender)
    assert (refused.granted, refused.retry_in) == (0, timedelta(seconds=0.005))
    assert (await lease(app, sender)).granted == 5


Asks = st.lists(st.tuples(st.integers(0, 300), st.integers(10, 1500)), min_size=1, max_size=40)
"""How many ms later somebody asks, and for how many ms."""


@given(rate=st.sampled_from(["3/s", "100/s", "777/s", "90/m"]), asks=Asks)
@settings(deadline=None, max_examples=25)
def test_no_moment_is_given_out_twice(lab: Lab, rate: str, asks: list[tuple[int, int]]) -> None:
    """Whoever asks for whatever whenever: pieces do not overlap, so all workers together keep the rate."""
    lab.run(_no_moment_twice(lab, rate, asks))


async def _no_moment_twice(lab: Lab, rate: str, asks: list[tuple[int, int]]) -> None:
    if await lab.owner.fetchval("SELECT to_regclass('test_clock')") is None:
        await stop_clock(lab.owner)
    sender = await sender_at(lab.app, rate, f"file:///{await lab.app.fetchval('SELECT count(*) FROM senders')}")
    now, free = 0.0, float("-inf")
    for wait, length in asks:
        now += wait / 1000
        await set_clock(lab.owner, NOON + timedelta(seconds=now))
        found = await lease(lab.app, sender, timedelta(milliseconds=length))
        free = _checked(found, now, free)


def _checked(found: Any, now: float, free: float) -> float:
    assert found.each is not None
    if not found.granted:
        assert found.retry_in > timedelta()
        return free
    starts_at = now + found.starts_in
    assert starts_at >= free - 2e-6
    assert -0.1001 <= found.starts_in <= 1.0001
    assert found.granted == 1 or found.granted * found.each <= 1.0001
    return starts_at + found.granted * found.each
