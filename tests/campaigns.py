"""Campaigns to test with: written down, filled and worked on through the calls that the program makes."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from postledger.database import Connection
from postledger.ledger import queue
from postledger.ledger.queue import Claim, Delivery, Outcome, Settled

WITHIN = 30.0

Person = tuple[str, str]
"""Key and address."""


def people(count: int, first: int = 1) -> list[Person]:
    return [(f"k{n}", f"p{n}@example.org") for n in range(first, first + count)]


async def draft(
    conn: Connection, name: str = "spring", *, kind: str = "bulk", unknown: str = "resend", attempts: int = 5
) -> int:
    """A campaign without people; its id."""
    return await conn.fetchval(
        "SELECT draft_campaign($1, $2, 1, 'letter', 'news@example.org', NULL, $3, $4, NULL, '24 hours', 0)",
        name,
        kind,
        unknown,
        attempts,
    )


async def stage(conn: Connection, rows: Iterable[Person]) -> int:
    """An import that waits for `enqueue`; its id."""
    async with conn.transaction():
        import_id = await conn.fetchval("INSERT INTO imports (source) VALUES ('test') RETURNING id")
        records = [(import_id, line, key, email, {"n": line}) for line, (key, email) in enumerate(rows, 2)]
        columns = ("import_id", "line", "key", "email", "data")
        await conn.copy_records_to_table("import_rows", records=records, columns=columns)
        await conn.execute("UPDATE imports SET state = 'staged', rows = $2 WHERE id = $1", import_id, len(records))
    return import_id


async def enqueue(conn: Connection, campaign: int, rows: Iterable[Person]) -> Mapping[str, int]:
    """Adds people; the counts."""
    import_id = await stage(conn, rows)
    return dict(await conn.fetchrow("SELECT * FROM enqueue_import($1, $2)", campaign, import_id))


async def change(conn: Connection, campaign: int, event: str, body: Mapping[str, Any] | None = None) -> int:
    """An event on the campaign's own stream; its version."""
    return await conn.fetchval("SELECT change_campaign($1, $2, $3)", campaign, event, body or {})


async def started(conn: Connection, count: int = 10, name: str = "spring", **options: Any) -> int:
    """A campaign that is being sent to so many people."""
    campaign = await draft(conn, name, **options)
    await enqueue(conn, campaign, people(count))
    await change(conn, campaign, "Started")
    return campaign


async def enlist(conn: Connection, label: str = "worker") -> int:
    return await conn.fetchval("SELECT enlist_worker($1)", label)


async def claim(
    conn: Connection, campaign: int, worker: int, limit: int = 10, claim_id: uuid.UUID | None = None
) -> Claim:
    return await queue.claim(conn, campaign, claim_id or uuid.uuid4(), worker, limit, content=True, timeout=WITHIN)


async def settle(conn: Connection, campaign: int, outcomes: Sequence[Outcome]) -> Settled:
    return await queue.settle(conn, campaign, outcomes, timeout=WITHIN)


def sent(delivery: Delivery) -> Outcome:
    body = {"attempt": delivery.attempt, "provider": "null", "message_id": f"{delivery.delivery_id}@example.org"}
    return Outcome(delivery, "Sent", body)


def deferred(delivery: Delivery, due_in: timedelta = timedelta()) -> Outcome:
    return Outcome(delivery, "Deferred", {"attempt": delivery.attempt, "class": "retry", "code": "450"}, due_in)


def released(delivery: Delivery, due_in: timedelta = timedelta()) -> Outcome:
    return Outcome(delivery, "Released", {"reason": "shutdown"}, due_in)


def failed(delivery: Delivery, suppress: str | None = None) -> Outcome:
    body = {"attempt": delivery.attempt, "class": "permanent_recipient", "code": "550"}
    return Outcome(delivery, "Failed", body, suppress=suppress)


def unknown(delivery: Delivery, due_in: timedelta = timedelta()) -> Outcome:
    return Outcome(delivery, "OutcomeUnknown", {"attempt": delivery.attempt, "reason": "lost"}, due_in)


def skipped(delivery: Delivery) -> Outcome:
    return Outcome(delivery, "Skipped", {"reason": "expired"})
