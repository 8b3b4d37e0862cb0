"""A database with campaigns and workers that really send, for the tests of everything around them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from attrs import frozen

from postledger.database import Connection, Database
from postledger.demo.behaviours import Choice, accept
from postledger.demo.catcher import Catcher
from postledger.demo.keepers import Caught
from postledger.ledger import campaigns, senders
from postledger.ledger.campaigns import Settings, Source
from postledger.ledger.queue import Outcome
from postledger.projections.verify import verify
from postledger.workers.worker import Worker, WorkerOptions
from tests import campaigns as calls
from tests.eventually import eventually

LETTER = Source("Hello {{ n }}", "<p>Number {{ n }}</p>", None)
MOST = 30.0
"""Seconds that a test waits for what must happen: generous, since other things run on the same machine."""


class Inbox(Catcher):
    """A catcher that keeps what it takes, for tests in one process."""

    def __init__(self, behaviour: Choice = accept) -> None:
        super().__init__(behaviour, [self.note])
        self.mails: list[Caught] = []

    def note(self, caught: Caught) -> None:
        self.mails.append(caught)

    @property
    def received(self) -> Counter[str]:
        """Copies by recipient."""
        return Counter(mail.recipient for mail in self.mails)


@frozen
class Happened:
    """One event of one delivery, or of the campaign itself."""

    type: str
    body: Mapping[str, Any]


class Mailing:
    """`conn` is a connection to look and command with; workers have their own."""

    def __init__(self, database: Database, conn: Connection) -> None:
        self.database = database
        self.conn = conn

    def through(self, dsn: str) -> "Mailing":
        """The same, with workers that come another way."""
        return Mailing(Database(dsn), self.conn)

    async def written(self, url: str, people: Iterable[str], *, source: Source = LETTER, **settings: Any) -> int:
        """A campaign to these addresses, not started; its id."""
        sender_id = await senders.keep(self.conn, url)
        name = settings.pop("name", f"campaign {await self.conn.fetchval('SELECT count(*) FROM campaigns')}")
        chosen = Settings(name=name, mail_from="News <news@example.com>", sender_id=sender_id, **settings)
        campaign = await campaigns.draft(self.conn, chosen, source)
        await calls.enqueue(self.conn, campaign, [(address, address) for address in people])
        return campaign

    async def started(self, url: str, people: Iterable[str], **settings: Any) -> int:
        campaign = await self.written(url, people, **settings)
        await self.change(campaign, "Started")
        return campaign

    async def change(self, campaign: int, event: str, body: Mapping[str, Any] | None = None) -> None:
        await calls.change(self.conn, campaign, event, body)

    async def status(self, campaign: int) -> str:
        return await self.conn.fetchval(campaigns.sql.status, campaign)

    async def paused_for(self, campaign: int) -> str | None:
        return await self.conn.fetchval("SELECT pause_reason FROM campaigns WHERE id = $1", campaign)

    async def counts(self, campaign: int) -> dict[str, int]:
        """The counts that are not zero, without the audience."""
        counted = await campaigns.counts(self.conn, campaign)
        return {name: n for name, n in counted.items() if n and name != "audience"}

    async def events(self, campaign: int, address: str | None = None) -> list[Happened]:
        """What happened to one recipient, or to the campaign itself, in order."""
        delivery = 0
        if address is not None:
            query = "SELECT delivery_id FROM recipients WHERE campaign_id = $1 AND email = $2"
            delivery = await self.conn.fetchval(query, campaign, address)
        query = "SELECT type, body FROM events WHERE campaign_id = $1 AND delivery_id = $2 ORDER BY position"
        return [Happened(*row) for row in await self.conn.fetch(query, campaign, delivery)]

    async def types(self, campaign: int, address: str | None = None) -> list[str]:
        return [event.type for event in await self.events(campaign, address)]

    async def happened(self, campaign: int) -> Counter[str]:
        """All events of the deliveries, by type."""
        query = "SELECT type, count(*) FROM events WHERE campaign_id = $1 AND delivery_id <> 0 GROUP BY 1"
        return Counter(dict(await self.conn.fetch(query, campaign)))

    async def claims(self) -> int:
        return await self.conn.fetchval("SELECT count(*) FROM claims")

    async def until(self, campaign: int, status: str, within: float = MOST) -> None:
        """Waits for the campaign's status."""

        async def reached() -> None:
            assert await self.status(campaign) == status, await self.counts(campaign)

        await eventually(reached, within)

    async def until_counted(self, campaign: int, status: str, count: int, within: float = MOST) -> None:
        """Waits for so many deliveries in one status."""

        async def reached() -> None:
            assert (await self.counts(campaign)).get(status, 0) >= count

        await eventually(reached, within)

    async def until_happened(self, campaign: int, event: str, count: int = 1, within: float = MOST) -> None:
        """Waits for so many events of one type."""

        async def reached() -> None:
            assert (await self.happened(campaign))[event] >= count

        await eventually(reached, within)

    async def skip(self, seconds: float) -> None:
        """The database's clock goes on by so much, and whoever waits for a time is told to look."""
        async with self.database.connection(role=None) as owner:
            await owner.execute(
                "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE"
                f" AS $$ SELECT clock_timestamp() + interval '{seconds} seconds' $$"
            )
        await self.conn.execute("SELECT wake()")

    async def until_counts(self, campaign: int, within: float = MOST, **counts: int) -> None:
        """Waits for these counts, and no others."""

        async def reached() -> None:
            assert await self.counts(campaign) == counts

        await eventually(reached, within)

    async def check(self, campaign: int) -> None:
        """The log and the tables say the same, and nothing is left in anybody's hands."""
        found = await verify(self.conn, campaign)
        assert found.equal, found.differences
        assert await self.claims() == 0

    async def check_envelopes(self, campaign: int, mails: Iterable[Caught]) -> None:
        """Each mail went to the recipient of the delivery that it names, and to nobody else."""
        query = "SELECT delivery_id, email FROM recipients WHERE campaign_id = $1"
        whose = {f"{campaign}.{delivery}": email for delivery, email in await self.conn.fetch(query, campaign)}
        for mail in mails:
            assert mail.recipient == whose[mail.headers["x-postledger-delivery"]]
            assert f"To: {mail.recipient}\r\n".encode() in mail.content

    async def check_copies(self, campaign: int, received: Counter[str]) -> None:
        """Nobody is missing who is recorded as sent, and a second copy needs an unknown outcome before it."""
        query = """
            SELECT r.email, q.status::text AS status,
                   (SELECT count(*) FROM events e WHERE e.campaign_id = q.campaign_id AND e.delivery_id = q.delivery_id
                    AND e.type = 'OutcomeUnknown') AS unknown
            FROM recipient_queue q JOIN recipients r USING (campaign_id, delivery_id) WHERE q.campaign_id = $1"""
        for row in await self.conn.fetch(query, campaign):
            copies = received[row["email"]]
            assert copies <= 1 + row["unknown"], row
            assert copies >= 1 or row["status"] != "sent", row

    @asynccontextmanager
    async def working(self, *, listen: Database | None = None, **options: Any) -> AsyncIterator[Worker]:
        """A worker that runs as long as the context, and ends in order."""
        settled: list[Outcome] = []
        chosen = WorkerOptions(**{"grace": 5.0, **options})
        worker = Worker(self.database, chosen, listen=listen, on_settled=settled.extend)
        await worker.open()
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await running


def addresses(count: int, tag: str = "") -> list[str]:
    """So many recipients; the tag says how the catcher is to treat them, where it goes by tags."""
    suffix = f"+{tag}" if tag else ""
    return [f"p{n}{suffix}@example.net" for n in range(1, count + 1)]


def give_up(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def of_type(events: Sequence[Happened], kind: str) -> list[Mapping[str, Any]]:
    """The bodies of the events of one type."""
    return [event.body for event in events if event.type == kind]
