"""What a block is, and who may make one when."""

import asyncio
import json
from itertools import combinations, product

import asyncpg
import pytest

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal, seal_all
from tests.eventually import eventually
from tests.lab import Lab
from tests.sealing.log import Log, append


async def sizes(conn: Connection) -> list[int]:
    return [row["n"] for row in await conn.fetch("SELECT n FROM blocks ORDER BY block_no")]


async def positions(conn: Connection, block: int) -> list[int]:
    ranges = await conn.fetchval("SELECT positions FROM blocks WHERE block_no = $1", block)
    return [position for r in ranges for position in range(r.lower, r.upper)]


async def test_a_block_has_what_was_committed_since_the_last_one(log: Log) -> None:
    first = await log.append(count=3)
    second = await log.append((1, 2), count=2)
    block = await log.seal()
    assert await positions(log.conn, block) == first + second
    assert await log.seal() == 0
    third = await log.append((1, 1), 4)
    assert await log.seal() == block + 1
    assert await positions(log.conn, block + 1) == third


def test_every_order_of_two_transactions_and_of_the_blocks_between(lab: Lab) -> None:
    """Each of them in one block, once, and not before it was committed: also the very next transaction number."""
    conns = [lab.run(lab.connect()) for _ in range(2)]
    lab.run(seal(lab.app))
    number = 0
    for first in combinations(range(4), 2):
        order = [0 if step in first else 1 for step in range(4)]
        for sealing in product((False, True), repeat=4):
            number += 1
            lab.run(_in_order(lab.app, conns, order, sealing, 1000 + number))
    for conn in conns:
        conn.terminate()


async def _in_order(
    app: Connection, conns: list[Connection], order: list[int], sealing: tuple[bool, ...], campaign: int
) -> None:
    await append(app, (campaign, 1))  # so that the first block, too, has something to stand on
    due: list[int] = await _positions(app, campaign)
    written: dict[int, list[int]] = {}
    for who, seals in zip(order, sealing, strict=True):
        if who in written:
            await conns[who].execute("COMMIT")
            due += written[who]
        else:
            await conns[who].execute("BEGIN")
            written[who] = await append(conns[who], (campaign, 2 + who), 1, 2)
        if seals:
            block = await seal(app)
            assert (await positions(app, block) if block else []) == sorted(due)
            due = []
    block = await seal(app)
    assert (await positions(app, block) if block else []) == sorted(due)


async def _positions(conn: Connection, campaign: int) -> list[int]:
    return [row[0] for row in await conn.fetch("SELECT position FROM events WHERE campaign_id = $1", campaign)]


async def test_a_transaction_held_for_the_whole_run_delays_itself_alone(log: Log) -> None:
    held = await log.connect()
    await held.execute("BEGIN")
    late = await append(held, (9, 9), 1, 500)
    seen = []
    for n in range(1, 30):
        expected = await log.append((1, 1), n)
        block = await log.seal()
        assert await positions(log.conn, block) == expected
        seen += expected
    await held.execute("COMMIT")
    block = await log.seal()
    assert await positions(log.conn, block) == late
    assert [position for _, position in await log.feed()][-len(seen) - 500 :] == seen + late


async def test_what_a_held_transaction_has_written_is_not_looked_at(log: Log) -> None:
    """However much that is: seal() looks at what has ended."""
    held = await log.connect()
    await held.execute("BEGIN")
    await append(held, (9, 9), 1, 20_000)
    await log.append((1, 1), 1)
    await log.seal()
    costs = []
    for n in range(2, 5):
        await log.append((1, 1), n)
        costs.append(await _buffers(log.conn, "SELECT seal()"))
    assert max(costs) < 100, costs  # 20,000 events stand on more than 200 pages, and are 20,000 visits
    await held.execute("COMMIT")
    assert len(await positions(log.conn, await log.seal())) == 20_000


async def _buffers(conn: Connection, query: str) -> int:
    plan = await conn.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {query}")
    top = json.loads(plan)[0]["Plan"]
    return top["Shared Hit Blocks"] + top["Shared Read Blocks"]


async def test_positions_that_were_burned_are_in_no_block(log: Log, owner: Connection) -> None:
    ours = await log.append((1, 1))
    for n in range(3):
        await log.conn.execute("BEGIN")
        await log.append((2, n), 1, 2000)
        await log.conn.execute("ROLLBACK")
    await owner.execute("SELECT setval('events_position', nextval('events_position') + 1000000)")
    ours += await log.append((1, 2), 1, 3)
    block = await log.seal()
    assert await positions(log.conn, block) == ours
    await owner.execute("SELECT setval('events_position', 9007199254740989)")
    ours += await log.append((1, 3), 1, 5)  # over 2^53
    assert await positions(log.conn, await log.seal()) == ours[-5:] == list(range(2**53 - 2, 2**53 + 3))
    assert [position for _, position in await log.feed(limit=2)][-9:] == ours


async def test_what_was_rolled_back_to_a_savepoint_is_not_there(log: Log) -> None:
    async with log.conn.transaction():
        kept = await log.append((1, 1))
        await log.conn.execute("SAVEPOINT s")
        await log.append((1, 1), 2, 10)
        await log.conn.execute("ROLLBACK TO s")
        kept += await log.append((1, 1), 2)
        for n in range(100):  # more subtransactions than a snapshot lists
            await log.conn.execute(f"SAVEPOINT s{n}")
            kept += await log.append((1, 2), n + 1)
        other = await log.connect()
        await append(other, (2, 1))
        assert len(await positions(other, await seal(other))) == 1
    assert await positions(log.conn, await log.seal()) == kept


async def test_a_prepared_transaction_comes_when_it_is_committed(log: Log) -> None:
    conn = await log.connect()
    await conn.execute("BEGIN")
    late = await append(conn, (1, 1), 1, 3)
    await conn.execute("PREPARE TRANSACTION 'later'")
    early = await log.append((1, 2))
    assert await positions(log.conn, await log.seal()) == early
    await conn.execute("COMMIT PREPARED 'later'")
    assert await positions(log.conn, await log.seal()) == late


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_not_inside_a_transaction_that_has_written(log: Log, isolation: str) -> None:
    await log.conn.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    await log.append()
    with pytest.raises(asyncpg.ActiveSQLTransactionError):
        await log.seal()
    await log.conn.execute("ROLLBACK")
    assert await log.seal() == 0


async def test_an_event_of_the_sealing_transaction_itself_is_in_the_next_block(log: Log) -> None:
    await log.append()
    async with log.conn.transaction():
        block = await log.seal()
        late = await log.append((1, 2))
    assert await positions(log.conn, await log.seal()) == late
    assert await sizes(log.conn) == [1, 1, 1]
    assert block == 2


async def test_one_seals_at_a_time_and_the_other_is_told(log: Log) -> None:
    other = await log.connect()
    await log.append()
    await other.execute("BEGIN")
    assert await seal(other) == 2
    await log.append((1, 2))
    assert await log.seal() is None
    waiting = asyncio.create_task(seal_all(log.conn))
    await other.execute("COMMIT")
    assert await waiting
    assert await sizes(log.conn) == [1, 1, 1]


async def test_who_is_kept_from_sealing_leaves_in_the_end(log: Log) -> None:
    other = await log.connect()
    await log.append()
    await other.execute("BEGIN")
    await seal(other)
    assert not await seal_all(log.conn, within=0.1)


async def test_an_old_snapshot_is_fenced(log: Log) -> None:
    await log.append()
    other = await log.connect()
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await other.fetchval("SELECT 1 FROM events LIMIT 1")
    assert await log.seal() == 2
    with pytest.raises(asyncpg.UniqueViolationError):
        await seal(other)
    await other.execute("ROLLBACK")
    assert await seal(other) == 0


async def test_sealers_race_while_others_write(log: Log) -> None:
    conns = [await log.connect() for _ in range(6)]
    numbers: list[int] = []

    async def write(conn: Connection, stream: int) -> None:
        for n in range(40):
            async with conn.transaction():
                await append(conn, (1, stream), 1 + 5 * n, 5)

    async def keep_sealing(conn: Connection, writing: list[asyncio.Task[None]]) -> None:
        while not all(task.done() for task in writing):
            if block := await seal(conn):
                numbers.append(block)

    async with asyncio.TaskGroup() as group:
        writing = [group.create_task(write(conn, n)) for n, conn in enumerate(conns[:3], 1)]
        for conn in conns[3:]:
            group.create_task(keep_sealing(conn, writing))
    if block := await log.seal():
        numbers.append(block)
    assert sorted(numbers) == list(range(2, 2 + len(numbers)))
    found = [position for _, position in await log.feed()]
    assert len(found) == len(set(found)) == 600 + 1
    assert set(found) == {row[0] for row in await log.conn.fetch("SELECT position FROM events")}


async def test_a_new_block_is_told_of_after_its_commit_and_can_be_read_then(log: Log) -> None:
    listener, other = await log.connect(), await log.connect()
    heard: list[int] = []
    await listener.add_listener(await listener.fetchval("SELECT block_channel()"), lambda *_: heard.append(len(heard)))
    await log.append()
    await other.execute("BEGIN")
    block = await seal(other)
    await listener.fetchval("SELECT 1")
    assert heard == []
    await other.execute("COMMIT")

    async def told() -> None:
        assert heard

    await eventually(told)
    assert [number for number, _ in await log.feed()][-1] == block


async def test_sealing_wakes_no_worker(log: Log) -> None:
    listener = await log.connect()
    heard: list[str] = []
    for channel in ("wake_channel()", "block_channel()"):
        name = await listener.fetchval(f"SELECT {channel}")
        await listener.add_listener(name, lambda _conn, _pid, channel, _payload: heard.append(channel))
    await log.append()
    await log.seal()

    async def told() -> None:
        assert heard

    await eventually(told)
    assert heard == [await listener.fetchval("SELECT block_channel()")]


async def test_the_time_of_a_block_never_goes_back_nor_before_its_events(log: Log, owner: Connection) -> None:
    await log.append()
    await log.seal()
    slow = "SELECT clock_timestamp() - interval '1 hour'"
    await owner.execute(f"CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql AS $${slow}$$")
    await log.append((1, 2))
    await log.seal()
    times = [row[0] for row in await log.conn.fetch("SELECT sealed_at FROM blocks ORDER BY block_no")]
    assert times == sorted(times)
    late = await log.conn.fetchval(
        "SELECT count(*) FROM events e JOIN blocks b ON b.block_no = block_of(e.epoch, e.xid) WHERE e.at > b.sealed_at"
    )
    assert late == 0


async def test_who_has_left_something_unsealed_is_found_out(log: Log, database: str) -> None:
    async def unsealed() -> bool:
        return await log.conn.fetchval("SELECT unsealed()")

    assert not await unsealed()
    await log.append()
    assert await unsealed()
    await log.seal()
    assert not await unsealed()
    held = await log.connect()
    await held.execute("BEGIN")
    await append(held, (2, 2))
    assert not await unsealed()
    await log.append((1, 2))
    await log.seal()
    await held.execute("COMMIT")
    assert await unsealed()  # what the last block could not see
    await log.seal()
    async with Database(database).connection(role="postledger_audit") as auditor:
        assert not await auditor.fetchval("SELECT unsealed()")
        await log.append((1, 3))
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await auditor.fetchval("SELECT seal()")
