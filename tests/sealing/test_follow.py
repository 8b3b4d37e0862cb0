"""Pages of the sealed log, and checkpoints that move with what was made of them."""

import asyncio
import json

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from postledger.database import Connection
from postledger.errors import DataError
from postledger.events.types import Sent
from postledger.ledger.sealing import seal
from postledger.projections import follow
from postledger.projections.follow import Checkpoint, Page
from postledger.projections.records import UnreadableEvent, read_event
from tests.lab import Lab
from tests.sealing.log import At, Broken, Keeper, Log, append, checkpoint, feed, seen

BATCH = 10


async def to_the_end(conn: Connection, keeper: Keeper, limit: int = BATCH) -> list[Page]:
    pages = []
    while (page := await follow.step(conn, keeper, limit)) is not None:
        pages.append(page)
        if page.is_last:
            break
    return pages


async def fill(log: Log) -> list[At]:
    """Blocks of one event, of many, and two whose positions lie in each other."""
    conns = [await log.connect() for _ in range(2)]
    await log.append((1, 1), 1)
    await log.seal()
    await log.append((1, 1), 2, 57)
    await log.seal()
    for conn in conns:
        await conn.execute("BEGIN")
    for n in range(1, 6):
        for stream, conn in enumerate(conns, 2):
            await append(conn, (1, stream), n)
    for conn in reversed(conns):
        await conn.execute("COMMIT")
        await log.seal()
    return await log.feed(limit=100_000)


@pytest.mark.parametrize("count", [0, 1, BATCH - 1, BATCH, BATCH + 1, 3 * BATCH])
async def test_any_number_of_events_is_read_to_its_end(log: Log, count: int) -> None:
    keeper = Keeper("any")
    await to_the_end(log.conn, keeper)
    if count:
        await log.append((1, 1), 1, count)
        await log.seal()
    before = keeper.calls
    pages = await to_the_end(log.conn, keeper)
    assert sum(len(page.events) for page in pages) == count
    assert keeper.calls - before == -(-count // BATCH)  # nobody is called for nothing
    assert await seen(log.conn, "any") == await log.feed()
    assert await checkpoint(log.conn, "any") == await log.head()


async def test_nothing_is_sealed_yet(log: Log, owner: Connection) -> None:
    await owner.execute("DELETE FROM blocks")
    page = await follow.read_page(log.conn, Checkpoint(), 5)
    assert (list(page.events), page.checkpoint, page.is_last) == ([], Checkpoint(), True)


def test_pages_of_any_size_from_any_place(lab: Lab) -> None:
    lab.run(seal(lab.app))
    lab.run(_fill_lab(lab))
    whole = lab.run(feed(lab.app, limit=100_000))

    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    @given(start=st.integers(0, len(whole)), sizes=st.lists(st.integers(1, 30), min_size=1))
    def check(start: int, sizes: list[int]) -> None:
        after = Checkpoint(*whole[start - 1]) if start else Checkpoint()
        found: list[At] = []
        while True:
            page = lab.run(follow.read_page(lab.app, after, sizes[len(found) % len(sizes)]))
            found += [(event["block_no"], event["position"]) for event in page.events]
            after = Checkpoint.decode(page.checkpoint.encode())
            if page.is_last:
                break
        assert found == whole[start:]

    check()


async def _fill_lab(lab: Lab) -> None:
    conns = [await lab.connect() for _ in range(2)]
    for turn in range(4):
        for n, conn in enumerate(conns):
            await conn.execute("BEGIN")
            await append(conn, (1 + turn, n), 1, 3)
            await append(conns[0], (1 + turn, 7 + n), 1, 2)
        for conn in conns[:: 1 if turn % 2 else -1]:
            await conn.execute("COMMIT")
            await seal(lab.app)
    for conn in conns:
        conn.terminate()


async def test_what_is_filtered_out_is_passed(log: Log) -> None:
    """A type that never occurs: its follower is at the end all the same, and wakes for the next one."""
    whole = await fill(log)
    keeper = Keeper("nothing", types={"Never"})
    await to_the_end(log.conn, keeper)
    assert await checkpoint(log.conn, "nothing") == Checkpoint(*whole[-1])
    assert await seen(log.conn, "nothing") == []


async def test_a_restart_at_each_checkpoint_skips_and_repeats_nothing(log: Log) -> None:
    whole = await fill(log)
    for _ in range(0, len(whole) + 1, 7):
        async with log.database.connection() as conn:
            page = await follow.step(conn, Keeper("restarted"), 7)
        assert page
        assert await checkpoint(log.conn, "restarted") == page.checkpoint
    assert await seen(log.conn, "restarted") == whole


async def test_at_the_end_the_next_event_is_got(log: Log) -> None:
    keeper = Keeper("tail")
    for n in range(1, 4):
        await to_the_end(log.conn, keeper)
        await log.append((1, 1), n)
        assert (await to_the_end(log.conn, keeper))[0].events == []  # not sealed: not there
        block = await log.seal()
        [page] = await to_the_end(log.conn, keeper)
        assert [event["block_no"] for event in page.events] == [block]


async def test_what_fails_leaves_the_checkpoint_and_is_got_again(log: Log) -> None:
    whole = await fill(log)

    async def break_off(_: Connection) -> None:
        raise Broken

    broken = Keeper("one", break_off=break_off)
    for _ in range(3):
        with pytest.raises(Broken):
            await follow.step(log.conn, broken, 5)
        assert await checkpoint(log.conn, "one") in (None, Checkpoint())
        assert await seen(log.conn, "one") == []
    await follow.step(log.conn, Keeper("one"), 5)
    with pytest.raises(Broken):
        await follow.step(log.conn, broken, 5)
    assert await checkpoint(log.conn, "one") == Checkpoint(*whole[4])
    await to_the_end(log.conn, Keeper("one"))
    assert await seen(log.conn, "one") == whole


async def test_a_checkpoint_that_could_not_be_written_is_written_the_next_time(log: Log, owner: Connection) -> None:
    whole = await fill(log)
    await follow.step(log.conn, Keeper("one"), 3)
    await owner.execute("ALTER TABLE followers ADD CONSTRAINT full_disk CHECK (position = 0) NOT VALID")
    with pytest.raises(asyncpg.CheckViolationError):
        await follow.step(log.conn, Keeper("one"), 3)
    assert await seen(log.conn, "one") == whole[:3]
    await owner.execute("ALTER TABLE followers DROP CONSTRAINT full_disk")
    await to_the_end(log.conn, Keeper("one"))
    assert await seen(log.conn, "one") == whole


async def test_a_follower_that_spoils_its_transaction_does_not_move(log: Log) -> None:
    await fill(log)

    async def break_off(conn: Connection) -> None:
        with pytest.raises(asyncpg.UndefinedTableError):
            await conn.execute("SELECT FROM nowhere")

    with pytest.raises(asyncpg.InFailedSQLTransactionError):
        await follow.step(log.conn, Keeper("careless", break_off=break_off), 3)
    assert await checkpoint(log.conn, "careless") is None


async def test_two_first_starts_at_once(log: Log) -> None:
    whole = await fill(log)
    inside, on = asyncio.Event(), asyncio.Event()

    async def hold(_: Connection) -> None:
        inside.set()
        await on.wait()

    first = asyncio.create_task(follow.step(await log.connect(), Keeper("twin", break_off=hold), 5))
    await inside.wait()
    second = asyncio.create_task(follow.step(await log.connect(), Keeper("twin"), 5))
    on.set()
    pages = await asyncio.gather(first, second)
    assert [(e["block_no"], e["position"]) for page in pages if page for e in page.events] == whole[:10]
    assert await seen(log.conn, "twin") == whole[:10]


async def test_a_first_start_that_fails_leaves_it_to_the_other(log: Log) -> None:
    whole = await fill(log)
    inside, on = asyncio.Event(), asyncio.Event()

    async def fail(_: Connection) -> None:
        inside.set()
        await on.wait()
        raise Broken

    first = asyncio.create_task(follow.step(await log.connect(), Keeper("twin", break_off=fail), 5))
    await inside.wait()
    second = asyncio.create_task(follow.step(await log.connect(), Keeper("twin"), 5))
    on.set()
    await asyncio.wait([first, second])
    assert isinstance(first.exception(), Broken)
    assert await seen(log.conn, "twin") == whole[:5]


async def test_one_process_at_a_time_drives_a_follower_and_none_holds_up_another_follower(log: Log) -> None:
    await fill(log)
    await follow.step(log.conn, Keeper("slow"), 1)

    async def meanwhile(_: Connection) -> None:
        assert await follow.step(await log.connect(), Keeper("slow"), 5) is None
        assert len(await to_the_end(await log.connect(), Keeper("quick"))) > 1

    await follow.step(log.conn, Keeper("slow", break_off=meanwhile), 5)
    assert await checkpoint(log.conn, "quick") == await log.head()


async def test_positions_that_are_gone_are_passed(log: Log, owner: Connection) -> None:
    """As when an old part of the log is taken away, in the middle or at the end."""
    whole = await fill(log)
    await owner.execute(
        "ALTER TABLE events_1 DISABLE TRIGGER append_only_rows; ALTER TABLE events DISABLE TRIGGER append_only_rows"
    )
    gone = [position for block, position in whole if block in (whole[5][0], whole[-1][0])]
    await owner.execute("DELETE FROM events WHERE position = ANY ($1)", gone)
    keeper = Keeper("late")
    await to_the_end(log.conn, keeper, 4)
    assert await seen(log.conn, "late") == [at for at in whole if at[1] not in gone]
    assert await checkpoint(log.conn, "late") == Checkpoint(*whole[-1])
    assert (await to_the_end(log.conn, keeper))[0].events == []


async def test_an_event_that_cannot_be_read_stops_its_follower_and_is_named(log: Log) -> None:
    body = {"attempt": 1, "provider": "null"}
    for version, kind in ((1, "Sent"), (2, "Teleported")):
        await log.conn.execute(
            "INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES (1, 1, $1, $2, $3)",
            *(version, kind, body),
        )
        await log.seal()
    bad = await log.conn.fetchval("SELECT position FROM events WHERE type = 'Teleported'")

    class Decoding(Keeper):
        async def apply(self, conn: Connection, events: list[asyncpg.Record]) -> None:
            assert any(isinstance(read_event(e).event, Sent) for e in events if e["campaign_id"])
            await super().apply(conn, events)

    await follow.step(log.conn, Decoding("decoding"), 2)
    before = await checkpoint(log.conn, "decoding")
    with pytest.raises(UnreadableEvent, match=f"^event {bad} \\(campaign 1, delivery 1\\): "):
        await follow.step(log.conn, Decoding("decoding"), 2)
    assert await checkpoint(log.conn, "decoding") == before
    await to_the_end(log.conn, Keeper("indifferent"))  # who does not look at it is not stopped
    assert await checkpoint(log.conn, "indifferent") == await log.head()


async def test_a_page_costs_its_own_size_however_large_the_block(log: Log) -> None:
    await log.append((1, 1), 1, 30_000)
    await log.seal()
    buffers = []
    for after in (10, 15_000, 29_000):
        place = (await log.head()).block_no, (await log.feed())[after][1]
        plan = await log.conn.fetchval(
            "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT position FROM read_blocks(0::smallint, $1, $2, 100)", *place
        )
        top = json.loads(plan)[0]["Plan"]
        buffers.append(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
    assert max(buffers[1:]) < 100, buffers


async def test_rebuilt_from_nothing_it_has_everything_once(log: Log, owner: Connection) -> None:
    whole = await fill(log)
    await owner.execute("GRANT DELETE ON public.seen TO postledger_app")
    await follow.step(log.conn, Keeper("again"), 7)

    async def clear(conn: Connection) -> None:
        await conn.execute("DELETE FROM public.seen WHERE follower = 'again'")

    async def fail(_: Connection) -> None:
        assert await seen(other, "again") == whole[:7]  # for all others
        if failing.calls > 3:
            raise Broken

    other, failing = await log.connect(), Keeper("again", break_off=fail)
    with pytest.raises(Broken):
        await follow.rebuild(log.conn, failing, clear, 10)
    assert await seen(log.conn, "again") == whole[:7]
    assert await checkpoint(log.conn, "again") == Checkpoint(*whole[6])
    assert await follow.rebuild(log.conn, Keeper("again"), clear, 10) == len(whole)
    assert await seen(log.conn, "again") == whole
    assert await checkpoint(log.conn, "again") == await log.head()
    assert await follow.rebuild(log.conn, Keeper("for the first time"), clear, 10) == len(whole)


@given(st.builds(Checkpoint, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1)))
def test_a_checkpoint_outside_is_text(checkpoint: Checkpoint) -> None:
    text = checkpoint.encode()
    assert text.isascii()
    assert text.replace("-", "").replace("_", "").isalnum()
    assert Checkpoint.decode(text) == checkpoint


@pytest.mark.parametrize("text", ["", "1.17", "AQ", "é", "\n", Checkpoint(1, 2).encode() + "=", "A" * 23, "x" * 40])
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="is no checkpoint"):
        Checkpoint.decode(text)


async def test_a_checkpoint_beyond_the_end_is_refused(log: Log) -> None:
    """It would wait for ever for what has long been, in a database that was put back to an earlier time."""
    head = await log.head()
    for beyond in (Checkpoint(head.block_no, head.position + 1), Checkpoint(head.block_no + 1, 0)):
        with pytest.raises(DataError, match=f"beyond the last block, {head.block_no}"):
            await follow.read_page(log.conn, beyond, 5)
    assert (await follow.read_page(log.conn, head, 5)).checkpoint == head
