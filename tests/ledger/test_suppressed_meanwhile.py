"""Nobody is mailed who was suppressed before the permit, however long the transaction that suppressed was open.

Claims and permits look only at suppressions that earlier ones cannot have seen; here one begins at any step of a
campaign's life and is committed at any later one.
"""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from postledger.database import Connection, Database
from postledger.ledger import queue
from postledger.projections.verify import verify
from tests import campaigns
from tests.campaigns import people

VICTIM = "p1@example.org"
STEPS = ("draft", "enqueue", "start", "claim", "permit")
SPANS = [(begun, ended) for n, begun in enumerate(STEPS) for ended in STEPS[n:]]


@pytest.fixture
async def other(database: str) -> AsyncIterator[Connection]:
    async with Database(database).connection() as connection:
        yield connection


class Life:
    """A campaign's way to the permit; the suppression begins before one step and is committed before another."""

    def __init__(self, conn: Connection, other: Connection, suppress: Callable[[], Awaitable[None]]) -> None:
        self.conn = conn
        self.suppress = suppress
        self.transaction = other.transaction()
        self.list_id: int | None = None

    async def pass_through(self, begun: str, ended: str) -> None:
        for step in STEPS:
            if step == begun:
                await self.transaction.start()
                await self.suppress()
            if step == ended:
                await self.transaction.commit()
            await getattr(self, step)()

    async def draft(self) -> None:
        self.campaign = await campaigns.draft(self.conn)
        await self.conn.execute("UPDATE campaigns SET list_id = $2 WHERE id = $1", self.campaign, self.list_id)

    async def enqueue(self) -> None:
        await campaigns.enqueue(self.conn, self.campaign, people(3))

    async def start(self) -> None:
        await campaigns.change(self.conn, self.campaign, "Started")

    async def claim(self) -> None:
        self.worker = await campaigns.enlist(self.conn)
        self.claim_id = uuid.uuid4()
        claim = await campaigns.claim(self.conn, self.campaign, self.worker, claim_id=self.claim_id)
        self.rows = {row.email: row for row in claim.rows}

    async def permit(self) -> None:
        self.answer = await queue.ask_permit(
            self.conn, self.worker, 0, [self.claim_id], [], beat=False, now=0.0, timeout=10
        )

    def mailed(self) -> set[str | None]:
        return {email for email, row in self.rows.items() if row.delivery_id not in self.answer.suppressed}


@pytest.mark.parametrize(("begun", "ended"), SPANS)
async def test_suppressed(app: Connection, other: Connection, begun: str, ended: str) -> None:
    async def suppress() -> None:
        await other.execute("SELECT suppress($1, 'complaint', 'test')", VICTIM)

    life = Life(app, other, suppress)
    await life.pass_through(begun, ended)
    assert life.mailed() == {"p2@example.org", "p3@example.org"}
    assert (await verify(app, life.campaign)).equal


@pytest.mark.parametrize(("begun", "ended"), SPANS)
async def test_unsubscribed_from_the_list(app: Connection, other: Connection, begun: str, ended: str) -> None:
    async def suppress() -> None:
        await other.execute("SELECT unsubscribe_hash(address_hash($1), $2, 'test')", VICTIM, life.list_id)

    life = Life(app, other, suppress)
    life.list_id = await app.fetchval("INSERT INTO lists (name) VALUES ('news') RETURNING id")
    await life.pass_through(begun, ended)
    assert life.mailed() == {"p2@example.org", "p3@example.org"}


async def test_a_new_epoch_trusts_no_number(app: Connection, owner: Connection, other: Connection) -> None:
    """After a restore transactions count from 3 again; what was noted by old numbers would hide new suppressions."""

    async def never() -> None: ...

    life = Life(app, other, never)
    for step in ("draft", "enqueue", "start", "claim"):
        await getattr(life, step)()
    high = "99999999"
    await owner.execute(f"UPDATE campaigns SET screened = '{high}'")
    await owner.execute(f"UPDATE claims SET snapshot = '{high}:{high}:'")
    await owner.execute("SELECT begin_epoch()")
    await other.execute("SELECT suppress($1, 'complaint', 'test')", VICTIM)
    await life.permit()
    assert life.mailed() == {"p2@example.org", "p3@example.org"}
    assert await app.fetchval("SELECT screened IS NULL FROM campaigns WHERE id = $1", life.campaign)
