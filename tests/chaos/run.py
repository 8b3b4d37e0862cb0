"""A campaign under fire: what is broken is broken here, and what must hold afterwards is checked here."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import orjson
from attrs import define

from postledger.database import Connection, Database
from postledger.ledger import campaigns, senders
from postledger.ledger.campaigns import Settings, Source
from postledger.projections import progress
from postledger.projections.verify import verify
from postledger.workers.link import Link, LinkLost
from tests.eventually import eventually

LETTER = Source("Number {{ n }}", "<p>Dear {{ key }}, you are number {{ n }}.</p>", None)
FINISHES_WITHIN = 60.0
TERMINAL = {"sent", "failed", "skipped", "cancelled", "unknown"}


@define
class Ending:
    """What came of a campaign."""

    counts: dict[str, int]
    audience: int
    mails: int
    """Copies that the relay has taken."""
    missing: int
    """Recorded as sent, and not in the relay's hands."""
    doubled: int
    """Recipients with more than one copy."""
    unexplained: int
    """Copies beyond one and one for each unknown outcome."""
    unknown: int
    """Unknown outcomes that are recorded."""
    late: int
    """Evidence: outcomes that came too late to be applied."""
    claims: int
    unsealed: int | None
    """Events in no block, though all who appended have left, or were cleared up after."""
    counted: bool
    """Whether the follower that counts says the same."""
    differences: list[str]

    def check(self) -> None:
        """What holds after any crash (P2, P4, P5)."""
        assert set(self.counts) <= TERMINAL, self
        assert sum(self.counts.values()) == self.audience, self
        assert (self.missing, self.unexplained, self.claims) == (0, 0, 0), self
        assert (self.unsealed, self.counted) == (0, True), self
        assert not self.differences, self


class Run:
    """One campaign of `size` people, and connections that survive what is done to the server."""

    def __init__(self, dsn: str, caught: Path) -> None:
        self.database = Database(dsn)
        self.caught = caught
        self.campaign = 0
        self._link = Link(self.database, "chaos")
        self._read = self._mails = 0

    async def start(self, url: str, size: int, *, unknown: str = "resend") -> None:
        async with self.database.connection(role=None) as conn:
            sender_id = await senders.keep(conn, url)
            settings = Settings("chaos", "News <news@example.com>", sender_id=sender_id, unknown=unknown)
            self.campaign = await campaigns.draft(conn, settings, LETTER)
            await _fill(conn, self.campaign, size)
            await campaigns.change(conn, self.campaign, "Started")

    async def value(self, query: str, *values: object) -> int:
        """One number, asked for again while the server is away."""
        while True:
            try:
                async with self._link.use() as conn:
                    return await conn.fetchval(query, *values)
            except LinkLost:
                await asyncio.sleep(0.05)

    async def until_sent(self, count: int, within: float = FINISHES_WITHIN) -> None:
        """So many mails are with the relay."""

        def sent() -> None:
            assert self.mails() >= count

        await eventually(sent, within)

    def mails(self) -> int:
        """How many the relay has taken; reads what is new in its log."""
        with self.caught.open("rb") as log:
            log.seek(self._read)
            new = log.read()
        self._read += len(new)
        self._mails += new.count(b"\n")
        return self._mails

    async def until_free(self, worker: int) -> float:
        """Seconds until no claim is under this worker's name any more."""
        begun = time.monotonic()

        async def free() -> None:
            assert await self.value("SELECT count(*) FROM claims WHERE worker_id = $1", worker) == 0

        await eventually(free, FINISHES_WITHIN)
        return time.monotonic() - begun

    async def until_held(self, worker: int) -> None:
        """The worker has something in hand, to lose it."""

        async def held() -> None:
            assert await self.value("SELECT count(*) FROM claims WHERE worker_id = $1", worker)

        await eventually(held, FINISHES_WITHIN)

    async def watcher(self) -> int:
        """The worker that watches over the others: the one whose loss is hardest to notice."""

        async def found() -> int:
            watcher = await self.value(
                "SELECT id FROM workers WHERE ended IS NULL ORDER BY watched_at DESC NULLS LAST LIMIT 1"
            )
            assert await self.value("SELECT count(watched_at) FROM workers WHERE id = $1", watcher)
            return watcher

        return await eventually(found, FINISHES_WITHIN)

    async def until_progress(self) -> float:
        """Seconds until another mail arrives than those that are there now and those that are on their way."""
        begun, before = time.monotonic(), self.mails()

        def more() -> None:
            assert self.mails() > before + 20

        await eventually(more, FINISHES_WITHIN)
        return time.monotonic() - begun

    async def until_completed(self, within: float = FINISHES_WITHIN) -> None:
        async def completed() -> None:
            assert await self.value(
                "SELECT count(*) FROM campaigns WHERE id = $1 AND status = 'completed'", self.campaign
            )

        await eventually(completed, within)

    async def ending(self) -> Ending:
        """All that can be known afterwards, from the database and from the relay's log."""
        copies = Counter(orjson.loads(line)["recipient"] for line in self.caught.read_bytes().splitlines())
        async with self.database.connection(role=None) as conn:
            unknown = dict(await conn.fetch(_EVENTS, self.campaign, "OutcomeUnknown"))
            late = dict(await conn.fetch(_EVENTS, self.campaign, "Evidence"))
            sent = [row[0] for row in await conn.fetch(_SENT, self.campaign)]
            found = await verify(conn, self.campaign)
            counts = await campaigns.counts(conn, self.campaign)
            claims = await conn.fetchval("SELECT count(*) FROM claims")
            followed = await progress.read(conn, self.campaign)
        await self._link.close()
        return Ending(
            counts={name: n for name, n in counts.items() if n and name != "audience"},
            audience=counts["audience"],
            mails=copies.total(),
            missing=sum(address not in copies for address in sent),
            doubled=sum(n > 1 for n in copies.values()),
            unexplained=sum(max(n - 1 - unknown.get(address, 0), 0) for address, n in copies.items()),
            unknown=sum(unknown.values()),
            late=sum(late.values()),
            claims=claims,
            unsealed=found.unsealed,
            counted=all(n == getattr(followed, name) for name, n in counts.items() if name != "audience"),
            differences=[str(difference) for difference in found.differences],
        )


_EVENTS = """
    SELECT r.email, count(*) FROM events e JOIN recipients r USING (campaign_id, delivery_id)
    WHERE e.campaign_id = $1 AND e.type = $2 GROUP BY 1"""
_SENT = """
    SELECT r.email FROM recipient_queue q JOIN recipients r USING (campaign_id, delivery_id)
    WHERE q.campaign_id = $1 AND q.status = 'sent'"""


async def _fill(conn: Connection, campaign: int, size: int) -> None:
    async with conn.transaction():
        import_id = await conn.fetchval("INSERT INTO imports (source) VALUES ('chaos') RETURNING id")
        await conn.execute(
            """INSERT INTO import_rows (import_id, line, key, email, data)
               SELECT $1, n, 'k' || n, 'p' || n || '@example.net', jsonb_build_object('n', n)
               FROM generate_series(1, $2::int) n""",
            import_id,
            size,
        )
        await conn.execute("UPDATE imports SET state = 'staged', rows = $2 WHERE id = $1", import_id, size)
    await conn.execute("SELECT enqueue_import($1, $2)", campaign, import_id)
    await conn.execute("ANALYZE")
