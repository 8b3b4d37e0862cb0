"""Postledger through its own worker: every claim and outcome an event, every row sealed by a digest."""

from collections.abc import Awaitable, Callable

import orjson

from bench.contender import DSN, WAKE, committing, handled, main, person, started
from postledger.database import Connection, Database, migrate
from postledger.ledger import campaigns, senders
from postledger.ledger.audience import staging
from postledger.ledger.audience.rows import Row
from postledger.ledger.campaigns import Settings, Source
from postledger.workers.providers import registry
from postledger.workers.providers.base import Begin, Envelope
from postledger.workers.providers.null import NullProvider
from postledger.workers.reply import Reply
from postledger.workers.worker import Worker, WorkerOptions

NAME = "bench"


def _rows(first: int, count: int) -> list[Row]:
    people = (person(number) for number in range(first, first + count))
    return [
        Row(line, one["email"], one["email"], one["name"], orjson.dumps(one))
        for line, one in enumerate(people, start=first + 1)
    ]


async def _add(conn: Connection, first: int, count: int, *, kind: str) -> None:
    """The way of `postledger send`: staged in chunks, then one transaction that writes everybody down and starts."""
    staged = await staging.stage(conn, campaign_id=None, source="bench", rows=_rows(first, count))
    transaction = conn.transaction()
    await transaction.start()
    campaign_id = await campaigns.find_named(conn, NAME)
    if campaign_id is None:
        sender = await senders.keep(conn, "null://")
        settings = Settings(name=NAME, kind=kind, mail_from="News <news@example.com>", sender_id=sender)
        campaign_id = await campaigns.draft(conn, settings, Source("Hello", "<p>Hello {{ name }}</p>", None))
    await conn.fetchrow(campaigns.sql.enqueue_import, campaign_id, staged.import_id)
    if (await campaigns.read(conn, campaign_id)).status == "draft":
        await campaigns.change(conn, campaign_id, "Started")
    committing(first)
    await transaction.commit()
    await staging.finish(conn, staged.import_id)


async def init() -> None:
    await migrate(DSN)


async def enqueue(count: int) -> None:
    async with Database(DSN).connection(label="bench") as conn:
        await _add(conn, 1, count, kind="bulk")


class _Stamp(NullProvider):
    """Says when it was called and for whom: the start of a provider call."""

    async def send(self, envelope: Envelope, begin: Begin) -> Reply:
        await begin()
        handled(int(envelope.recipient.removeprefix("user").partition("@")[0]))
        return await super().send(envelope, begin)


async def work() -> None:
    if WAKE:
        registry._BUILT_IN["null"] = lambda url, concurrency: _Stamp(renders=True)
    worker = Worker(Database(DSN), WorkerOptions())
    await worker.open()
    started()
    await worker.run()


async def open_insert() -> Callable[[int], Awaitable[None]]:
    conn = await Database(DSN).connect(label="bench")

    async def insert(number: int) -> None:
        await _add(conn, number, 1, kind="standing")  # a bulk campaign would complete each time

    return insert


if __name__ == "__main__":
    main(init=init, enqueue=enqueue, work=work, open_insert=open_insert)
