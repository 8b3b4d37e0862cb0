"""A campaign in which nearly everything has happened to somebody."""

from datetime import timedelta

from postledger.database import Connection
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, people, released, sent, settle, skipped, unknown

HOUR = timedelta(hours=1)


async def varied(conn: Connection, name: str = "spring") -> int:
    """Every status and every outcome, a claim that is being worked on, a suppression, two pauses; the campaign's id."""
    campaign = await campaigns.draft(conn, name, unknown="hold")
    await conn.execute("SELECT suppress('p3@example.org', 'operator', 'cli')")
    await campaigns.enqueue(conn, campaign, people(40))
    await campaigns.enqueue(conn, campaign, people(10, first=35))
    await campaigns.change(conn, campaign, "Started")
    await campaigns.change(conn, campaign, "Paused")
    await campaigns.change(conn, campaign, "Resumed")
    worker = await enlist(conn)
    rows = (await claim(conn, campaign, worker, 20)).rows
    outcomes = [make(row) for make, row in zip(OUTCOMES, rows, strict=False)]
    await settle(conn, campaign, outcomes)
    await settle(conn, campaign, outcomes[:3])  # again
    await settle(conn, campaign, [failed(rows[0])])  # late, and kept as evidence
    await settle(conn, campaign, [sent(rows[4])])  # late, and applied
    await conn.execute("SELECT requeue($1, $2, 'asked for', 'operator')", campaign, [rows[3].delivery_id])
    return campaign


OUTCOMES = (
    sent,
    deferred,
    released,
    failed,
    unknown,
    unknown,
    skipped,
    lambda row: failed(row, suppress="invalid_recipient"),
    lambda row: deferred(row, HOUR),
    lambda row: released(row, HOUR),
)
