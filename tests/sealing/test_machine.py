"""Whatever transactions, sealers and readers do in whatever order: the blocks are exactly what was committed, once."""

import os
from collections import Counter
from functools import partial
from itertools import chain, count, groupby

import asyncpg
from attrs import define, field, frozen
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postledger.ledger.sealing import seal
from postledger.projections import follow
from postledger.projections.follow import Checkpoint
from tests.eventually import eventually
from tests.lab import Lab
from tests.sealing.log import At, Broken, Keeper, append, checkpoint, seen

# proof.py looks for longer.
EXAMPLES = int(os.environ.get("POSTLEDGER_MACHINE_EXAMPLES", "30"))
STEPS = int(os.environ.get("POSTLEDGER_MACHINE_STEPS", "40"))

TALLY: Counter[str] = Counter()
"""What has been done so far, for the long proof."""

WRITERS = 3
NUMBERS = count(1)
WRITER = st.integers(0, WRITERS - 1)
STREAM = st.integers(1, 5)
ISOLATION = ["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@frozen
class Event:
    """What the model knows of one event."""

    stream: int
    version: int
    position: int


@define
class Transaction:
    """An open one: what it has appended, and where it may go back to."""

    events: list[Event] = field(factory=list)
    savepoints: list[int] = field(factory=list)


class Feed(RuleBasedStateMachine):
    """Each example is a campaign and a follower of their own in one log: it cannot be emptied."""

    def __init__(self, lab: Lab, conns: list[asyncpg.Connection]) -> None:
        super().__init__()
        self.lab, self.run, self.conns = lab, lab.run, conns
        self.open: dict[int, Transaction] = {}
        self.prepared: dict[str, list[Event]] = {}
        self.committed: list[Event] = []
        self.unsealed: list[Event] = []
        self.sealed: list[tuple[int, Event]] = []  # the feed
        self.read = 0  # how much of the feed the follower has handled
        self.number = next(NUMBERS)

    @initialize()
    def begin_anew(self) -> None:
        TALLY["examples"] += 1
        self.settle_all()
        self.run(seal(self.lab.app))
        head = self.run(follow.read_page(self.lab.app, Checkpoint(), 1_000_000)).checkpoint
        self.name = f"keeper {self.number}"
        self.at = head
        self.run(follow.step(self.lab.app, Keeper(self.name), 0))
        self.run(self.lab.app.execute(follow.sql.move, self.name, head.block_no, head.position))

    @property
    def consumer(self) -> asyncpg.Connection:
        return self.conns[WRITERS]

    def settle_all(self) -> None:
        """What a failed example has left."""
        for conn in self.conns:
            if conn.is_in_transaction():
                self.execute(conn, "ROLLBACK")
        for row in self.run(self.lab.owner.fetch("SELECT gid FROM pg_prepared_xacts")):
            self.execute(self.lab.owner, f"ROLLBACK PREPARED '{row['gid']}'")

    def execute(self, conn: asyncpg.Connection, statement: str) -> None:
        self.run(conn.execute(statement))

    # Writers.

    @rule(
        writer=WRITER,
        stream=STREAM,
        number=st.integers(1, 4),
        isolation=st.sampled_from(ISOLATION),
        saves=st.booleans(),
    )
    def write(self, writer: int, stream: int, number: int, isolation: str, saves: bool) -> None:
        """In a transaction that stays open, perhaps from a savepoint on."""
        if writer not in self.open:
            TALLY["transactions"] += 1
            self.execute(self.conns[writer], f"BEGIN ISOLATION LEVEL {isolation}")
            self.open[writer] = Transaction()
        transaction = self.open[writer]
        if saves:
            self.execute(self.conns[writer], f"SAVEPOINT s{len(transaction.savepoints)}")
            transaction.savepoints.append(len(transaction.events))
        if not self.is_locked(stream, writer):
            transaction.events += self.append(self.conns[writer], stream, number, transaction.events)

    @rule(stream=STREAM, number=st.integers(1, 4), seals=st.booleans())
    def write_alone(self, stream: int, number: int, seals: bool) -> None:
        if not self.is_locked(stream):
            TALLY["transactions"] += 1
            self.commit(self.append(self.lab.app, stream, number, []), seals)

    def append(self, conn: asyncpg.Connection, stream: int, number: int, own: list[Event]) -> list[Event]:
        first = 1 + max((event.version for event in self.committed + own if event.stream == stream), default=0)
        positions = self.run(append(conn, (self.number, stream), first, number))
        TALLY["events"] += number
        return [Event(stream, version, position) for version, position in enumerate(positions, first)]

    def is_locked(self, stream: int, writer: int | None = None) -> bool:
        """By another: whoever writes to a stream has its row locked until the end."""
        others = [transaction.events for other, transaction in self.open.items() if other != writer]
        return any(event.stream == stream for event in chain(*others, *self.prepared.values()))

    @precondition(lambda self: any(transaction.savepoints for transaction in self.open.values()))
    @rule(data=st.data())
    def roll_back_to(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from([w for w, transaction in self.open.items() if transaction.savepoints]))
        transaction = self.open[writer]
        depth = data.draw(st.integers(0, len(transaction.savepoints) - 1))
        self.execute(self.conns[writer], f"ROLLBACK TO s{depth}")
        del transaction.events[transaction.savepoints[depth] :]
        del transaction.savepoints[depth + 1 :]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), end=st.sampled_from(["COMMIT", "COMMIT", "ROLLBACK", "PREPARE"]), seals=st.booleans())
    def end(self, data: st.DataObject, end: str, seals: bool) -> None:
        writer = data.draw(st.sampled_from([*self.open]))
        events = self.open.pop(writer).events
        TALLY[end] += 1
        if end == "PREPARE":
            gid = f"{self.number}.{next(NUMBERS)}"
            self.execute(self.conns[writer], f"PREPARE TRANSACTION '{gid}'")
            self.prepared[gid] = events
            return
        self.execute(self.conns[writer], end)
        if end == "COMMIT":
            self.commit(events, seals)

    @precondition(lambda self: self.prepared)
    @rule(data=st.data(), end=st.sampled_from(["COMMIT", "ROLLBACK"]), seals=st.booleans())
    def end_prepared(self, data: st.DataObject, end: str, seals: bool) -> None:
        gid = data.draw(st.sampled_from([*self.prepared]))
        self.execute(self.lab.owner, f"{end} PREPARED '{gid}'")
        events = self.prepared.pop(gid)
        if end == "COMMIT":
            self.commit(events, seals)

    def commit(self, events: list[Event], seals: bool) -> None:
        self.committed += events
        self.unsealed += events
        if seals:
            self.seal()

    @rule(number=st.sampled_from([1, 100, 1_000_000]))
    def burn_positions(self, number: int) -> None:
        TALLY["burned"] += number
        self.execute(self.lab.owner, f"SELECT setval('events_position', nextval('events_position') + {number})")

    # Sealers.

    @rule()
    def seal(self) -> None:
        block = self.run(seal(self.lab.app))
        if not self.unsealed:
            assert block == 0
            return
        row = self.run(self.lab.app.fetchrow("SELECT n, positions FROM blocks ORDER BY block_no DESC LIMIT 1"))
        taken = [p for r in row["positions"] for p in range(r.lower, r.upper)]
        expected = sorted(self.unsealed, key=lambda event: event.position)
        assert (row["n"], taken) == (len(expected), [event.position for event in expected])
        assert block == self.last_block + 1
        TALLY["blocks"] += 1
        self.sealed += [(block, event) for event in expected]
        self.unsealed = []

    @property
    def last_block(self) -> int:
        return self.sealed[-1][0] if self.sealed else self.at.block_no

    @precondition(lambda self: any(transaction.events for transaction in self.open.values()))
    @rule(data=st.data())
    def seal_among_own_events(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from([w for w, transaction in self.open.items() if transaction.events]))
        self.execute(self.conns[writer], "SAVEPOINT refused")
        try:
            self.run(seal(self.conns[writer]))
        except asyncpg.ActiveSQLTransactionError:
            self.execute(self.conns[writer], "ROLLBACK TO refused")
        else:
            raise AssertionError("sealed what may yet be rolled back")

    # Readers.

    @rule(limit=st.integers(1, 7))
    def consume(self, limit: int) -> None:
        page = self.run(follow.step(self.consumer, Keeper(self.name), limit))
        assert page is not None
        due = self.feed[self.read : self.read + limit]
        assert [(e["block_no"], e["position"]) for e in page.events] == due
        self.read += len(due)
        TALLY["pages"] += 1
        self.check()

    @rule(limit=st.integers(1, 7), how=st.sampled_from(["raise", "terminate"]))
    def crash(self, limit: int, how: str) -> None:
        """After the rows were written, before the checkpoint is."""

        async def break_off(conn: asyncpg.Connection) -> None:
            if how == "terminate":
                conn.terminate()
            raise Broken

        keeper = Keeper(self.name, break_off=break_off)
        pid = self.consumer.get_server_pid()
        try:
            self.run(follow.step(self.consumer, keeper, limit))
        except (Broken, asyncpg.InterfaceError):
            assert keeper.calls == 1
            TALLY["crashes"] += 1
        else:
            assert keeper.calls == 0
            assert self.read == len(self.feed)
        if self.consumer.is_closed():
            self.run(eventually(partial(self.has_gone, pid)))
            self.conns[WRITERS] = self.run(self.lab.connect())
        self.check()

    async def has_gone(self, pid: int) -> None:
        assert not await self.lab.owner.fetchval("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", pid)

    @precondition(lambda self: self.sealed)
    @rule(data=st.data(), limit=st.integers(1, 7))
    def read_from_anywhere(self, data: st.DataObject, limit: int) -> None:
        """With a checkpoint that was kept outside."""
        start = data.draw(st.integers(0, len(self.feed)))
        after = Checkpoint(*self.feed[start - 1]) if start else self.at
        page = self.run(follow.read_page(self.consumer, Checkpoint.decode(after.encode()), limit))
        assert [(e["block_no"], e["position"]) for e in page.events] == self.feed[start : start + limit]
        assert page.is_last == (start + limit > len(self.feed))

    @property
    def feed(self) -> list[At]:
        return [(block, event.position) for block, event in self.sealed]

    def check(self) -> None:
        """The follower has what its checkpoint says."""
        at = self.run(checkpoint(self.lab.app, self.name))
        handled = self.feed[: self.read]
        assert self.run(seen(self.lab.app, self.name)) == handled
        rest = [place for place in self.feed if Checkpoint(*place) > at]
        assert handled + rest == self.feed

    @invariant()
    def streams_are_in_order(self) -> None:
        for _, events in groupby(sorted(self.sealed, key=lambda one: one[1].stream), key=lambda one: one[1].stream):
            versions = [event.version for _, event in events]
            assert versions == sorted(versions)

    def teardown(self) -> None:
        """Everybody comes to an end: everything is there, once."""
        if not hasattr(self, "name"):
            return
        for writer in [*self.open]:
            self.execute(self.conns[writer], "COMMIT")
            self.commit(self.open.pop(writer).events, seals=False)
        for gid in [*self.prepared]:
            self.execute(self.lab.owner, f"COMMIT PREPARED '{gid}'")
            self.commit(self.prepared.pop(gid), seals=False)
        self.seal()
        for _ in range(0, len(self.feed) - self.read + 1, 5):
            self.run(follow.step(self.consumer, Keeper(self.name), 5))
        rows = self.run(self.lab.app.fetch(_ALL, self.number))
        assert self.run(seen(self.lab.app, self.name)) == self.feed == [(r["block"], r["position"]) for r in rows]
        assert sorted(event.position for event in self.committed) == sorted(row["position"] for row in rows)


# By the transaction, which is how history and replay know; the machine knows it by the positions of each block.
_ALL = "SELECT position, block_of(epoch, xid) AS block FROM events WHERE campaign_id = $1 ORDER BY 2, 1"


def test_the_blocks_are_what_was_committed(lab: Lab) -> None:
    search(lab, settings(max_examples=EXAMPLES, stateful_step_count=STEPS))


def search(lab: Lab, bounds: settings) -> None:
    conns = [lab.run(lab.connect()) for _ in range(WRITERS + 1)]
    try:
        run_state_machine_as_test(
            lambda: Feed(lab, conns),
            settings=settings(bounds, deadline=None, suppress_health_check=list(HealthCheck)),
        )
    finally:
        for conn in conns:
            conn.terminate()
