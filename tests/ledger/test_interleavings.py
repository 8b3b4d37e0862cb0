"""Two calls at once, the first held open: the second waits, steps aside or goes on, and nothing is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from attrs import frozen

from postledger.database import Connection, Database
from postledger.ledger.queue import Claim, Settled
from postledger.projections.verify import verify
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, people, sent, settle, started, unknown
from tests.eventually import eventually


@frozen
class World:
    """A campaign with work on all its rows: some are held, some by a dead worker, one has failed, some wait."""

    campaign: int
    worker: int
    held: Any
    orphaned: Any
    dead_claim: Any
    spare_import: int


Call = Callable[[Connection, World], Awaitable[Any]]


def changes(event: str) -> Call:
    return lambda conn, world: campaigns.change(conn, world.campaign, event)


CALLS: dict[str, Call] = {
    "claim": lambda conn, world: claim(conn, world.campaign, world.worker),
    "settle": lambda conn, world: settle(conn, world.campaign, [sent(world.held[0]), unknown(world.held[1])]),
    "zombie": lambda conn, world: settle(conn, world.campaign, [sent(row) for row in world.orphaned]),
    "reclaim": lambda conn, world: conn.fetchval("SELECT reclaim($1, $2)", world.campaign, world.dead_claim),
    "requeue": lambda conn, world: conn.fetchval("SELECT requeue($1, NULL, 'x', 'y')", world.campaign),
    "enqueue": lambda conn, world: conn.fetchrow(
        "SELECT * FROM enqueue_import($1, $2)", world.campaign, world.spare_import
    ),
    "pause": changes("Paused"),
    "cancel": changes("Cancelled"),
    "finish": lambda conn, world: conn.fetchval("SELECT finish_campaign($1)", world.campaign),
}
EXCLUSIVE = {"pause", "cancel"}

# Beside those: calls that want the very same rows, or the campaign's row.
SAME_ROWS = {
    ("settle", "settle"),
    ("zombie", "zombie"),
    ("zombie", "reclaim"),
    ("reclaim", "zombie"),
    ("reclaim", "reclaim"),
    ("requeue", "requeue"),
    ("enqueue", "enqueue"),
    ("requeue", "enqueue"),
    ("enqueue", "requeue"),
}


def waits(first: str, second: str) -> bool:
    """Whether the second has to wait for the first, in a campaign with open rows."""
    if "finish" in (first, second):
        return False  # it sees at a glance that there is work left
    if first in EXCLUSIVE:
        return second != "claim"  # which never waits
    return second in EXCLUSIVE or (first, second) in SAME_ROWS


@pytest.fixture
async def world(app):
    campaign = await campaigns.draft(app)
    await campaigns.enqueue(app, campaign, people(7))
    await campaigns.change(app, campaign, "Started")
    worker, dead = await enlist(app), await enlist(app)
    held = (await claim(app, campaign, worker, 3)).rows
    orphaned = (await claim(app, campaign, dead, 2)).rows
    await settle(app, campaign, [failed(held[2])])
    assert await app.fetchval("SELECT bury_worker($1, 1, '1 minute')", dead)
    spare = await campaigns.stage(app, people(9))
    return World(campaign, worker, held, orphaned, orphaned[0].claim_id, spare)


@pytest.fixture
async def other(database):
    async with Database(database).connection() as connection:
        yield connection


async def interleave(conn: Connection, other: Connection, first: Awaitable[Any], second: Awaitable[Any]):
    """Runs the second while the first is done but not committed: both answers, and whether the second waited."""
    async with conn.transaction():
        answer = await first
        task = asyncio.ensure_future(second)
        waited = await _waited(conn, other, task)
    return answer, (await asyncio.gather(task, return_exceptions=True))[0], waited


async def _waited(conn: Connection, other: Connection, task: asyncio.Future[Any]) -> bool:
    pid = other.get_server_pid()

    async def ended_or_waiting():
        waiting = await conn.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)", pid)
        assert task.done() or waiting
        return not task.done()

    return await eventually(ended_or_waiting)


async def all_is_well(conn: Connection, world: World) -> None:
    assert (await verify(conn, world.campaign)).differences == []
    progress = await conn.fetchrow("SELECT * FROM campaign_progress WHERE campaign_id = $1", world.campaign)
    counts = ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")
    assert sum(progress[name] for name in counts) == progress["audience"] >= 7


PAIRS = [(first, second) for first in CALLS for second in CALLS]


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=map("-".join, PAIRS))
async def test_any_two_calls_at_once(app, other, world, first, second):
    _, answer, waited = await interleave(app, other, CALLS[first](app, world), CALLS[second](other, world))
    assert waited == waits(first, second)
    assert answer_is_right(first, second, answer), answer
    await all_is_well(app, world)
    await drain(app, world)
    await all_is_well(app, world)


def answer_is_right(first: str, second: str, answer: Any) -> bool:
    """What the second may say once the first has happened."""
    if isinstance(answer, asyncpg.PostgresError):
        allowed = {
            ("pause", "pause"): "PL004",
            ("cancel", "pause"): "PL004",
            ("cancel", "cancel"): "PL004",
            ("cancel", "requeue"): "PL002",
            ("cancel", "enqueue"): "PL002",
            ("enqueue", "enqueue"): "PL007",
        }
        return answer.sqlstate == allowed.get((first, second))
    match second:
        case "claim":
            assert isinstance(answer, Claim)
            taken = {"claim": 0, "pause": 0, "cancel": 0}.get(first, 2)
            return answer.busy == (taken == 0) and len(answer.rows) == taken
        case "settle" | "zombie":
            lost = Settled(repeated=2) if first == second else Settled(evidence=2)
            late = {("settle", "settle"), ("zombie", "zombie")}
            if (first, second) == ("reclaim", "zombie"):
                return answer == Settled(applied=2)  # a Sent that came late counts
            return answer == (lost if (first, second) in late else Settled(applied=2))
        case "reclaim":
            return answer == (0 if first in ("reclaim", "zombie") else 2)
        case "requeue":
            return answer == (0 if first == "requeue" else 1)
        case "enqueue":
            return answer["accepted"] == 2
        case "finish":
            return answer is False
        case _:
            return isinstance(answer, int)


async def drain(conn: Connection, world: World) -> None:
    """From here the work still comes to its end."""
    status = await conn.fetchval("SELECT status::text FROM campaigns WHERE id = $1", world.campaign)
    if status == "paused":
        await campaigns.change(conn, world.campaign, "Resumed")
    for campaign_id, claim_id in await conn.fetch("SELECT campaign_id, claim_id FROM orphaned_claims()"):
        await conn.execute("SELECT reclaim($1, $2)", campaign_id, claim_id)
    for claim_id in await conn.fetch("SELECT claim_id FROM claims"):
        await conn.execute("SELECT release_claim($1, $2)", *claim_id, world.worker)
    while (answer := await claim(conn, world.campaign, world.worker)).rows or answer.cancelled:
        if answer.rows:
            await settle(conn, world.campaign, [sent(row) for row in answer.rows])
    assert await conn.fetchval("SELECT finish_campaign($1)", world.campaign)
    open_rows = "SELECT count(*) FROM recipient_queue WHERE status IN ('pending', 'sending')"
    assert await conn.fetchval(open_rows) == 0
    assert await conn.fetchval("SELECT count(*) FROM claims") == 0


# A campaign that is at its end: finishing takes the exclusive lock.


@pytest.fixture
async def ended(app):
    """The same, but everything in it has ended."""
    campaign = await started(app, 2, unknown="hold")
    worker = await enlist(app)
    rows = (await claim(app, campaign, worker)).rows
    await settle(app, campaign, [unknown(rows[0]), failed(rows[1])])
    spare = await campaigns.stage(app, people(1, first=9))
    return World(campaign, worker, rows, rows[:1], rows[0].claim_id, spare)


AFTER_FINISH = {
    "claim": (False, lambda answer: answer.busy and not answer.rows),
    "zombie": (True, lambda answer: answer == Settled(applied=1)),
    "reclaim": (False, lambda answer: answer == 0),
    "requeue": (True, lambda answer: answer == 2),
    "enqueue": (True, lambda answer: answer["accepted"] == 1),
    "pause": (True, lambda answer: answer.sqlstate == "PL004"),
    "cancel": (True, lambda answer: answer.sqlstate == "PL004"),
    "finish": (True, lambda answer: answer is False),
}


@pytest.mark.parametrize("second", AFTER_FINISH)
async def test_any_call_while_a_campaign_is_being_finished(app, other, ended, second):
    finished, answer, waited = await interleave(app, other, CALLS["finish"](app, ended), CALLS[second](other, ended))
    must_wait, is_right = AFTER_FINISH[second]
    assert finished
    assert waited == must_wait
    assert is_right(answer), answer
    assert (await verify(app, ended.campaign)).differences == []


BEFORE_FINISH = {
    "claim": (True, True),
    "zombie": (True, True),
    "reclaim": (False, True),
    "requeue": (True, False),
    "enqueue": (True, False),
    "pause": (True, False),
    "cancel": (True, True),  # which is the end of the sweep
    "finish": (True, False),  # somebody else did it
}


@pytest.mark.parametrize("first", BEFORE_FINISH)
async def test_a_campaign_is_finished_by_what_is_true_under_its_lock(app, other, ended, first):
    """The glance before the lock says "all ended"; what was being committed then may say otherwise."""
    must_wait, outcome = BEFORE_FINISH[first]
    _, answer, waited = await interleave(app, other, CALLS[first](app, ended), CALLS["finish"](other, ended))
    assert (waited, answer) == (must_wait, outcome)
    assert (await verify(app, ended.campaign)).differences == []


async def test_a_burial_waits_for_the_claim_that_is_under_way(app, other, world):
    bury = other.fetchval("SELECT bury_worker($1, 1, '1 minute')", world.worker)
    answer, buried, waited = await interleave(app, other, CALLS["claim"](app, world), bury)
    assert (len(answer.rows), buried, waited) == (2, True, True)
    orphans = await app.fetch("SELECT claim_id FROM orphaned_claims()")
    assert answer.rows[0].claim_id in {row[0] for row in orphans}


async def test_a_claim_after_the_burial_gets_nothing(app, other, world):
    bury = app.fetchval("SELECT bury_worker($1, 1, '1 minute')", world.worker)
    buried, answer, waited = await interleave(app, other, bury, CALLS["claim"](other, world))
    assert (buried, waited) == (True, True)
    assert answer.sqlstate == "PL006"


async def test_settling_waits_for_no_other_rows(app, other, world):
    """Two workers' outcomes, and one worker's in two calls, pass each other unless they share a claim."""
    mine, theirs = CALLS["settle"](app, world), CALLS["zombie"](other, world)
    assert not (await interleave(app, other, mine, theirs))[2]


async def test_two_settles_that_cross_do_not_lock_each_other_out(app, other, world):
    """Whatever order the outcomes come in: rows are locked in theirs."""
    forward, backward = [*world.held[:2], *world.orphaned], [*world.orphaned, *world.held[:2]][::-1]
    rounds = (
        settle(conn, world.campaign, [deferred(row) for row in rows])
        for conn, rows in ((app, forward), (other, backward))
    )
    answers = await asyncio.gather(*rounds)
    assert sum(answer.applied for answer in answers) == 4
    assert sum(answer.repeated for answer in answers) == 4
    await all_is_well(app, world)
