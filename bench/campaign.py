"""Campaigns for the runs with more than one: written down as `postledger send` does it, started together."""

from collections.abc import Iterable

from postledger.database import Connection
from postledger.ledger import campaigns, senders
from postledger.ledger.audience import staging
from postledger.ledger.audience.rows import Row
from postledger.ledger.campaigns import Settings, Source

LETTER = Source("Hello", "<p>Hello, nice to see you.</p>", None)


async def write_down(conn: Connection, name: str, url: str, addresses: Iterable[str]) -> int:
    """A draft to all of them; its id."""
    rows = (Row(line, address, address, None, b"{}") for line, address in enumerate(addresses, start=2))
    staged = await staging.stage(conn, campaign_id=None, source="bench", rows=rows)
    sender = await senders.keep(conn, url)
    settings = Settings(name=name, mail_from="News <news@example.com>", sender_id=sender)
    async with conn.transaction():
        campaign_id = await campaigns.draft(conn, settings, LETTER)
        await conn.fetchrow(campaigns.sql.enqueue_import, campaign_id, staged.import_id)
    await staging.finish(conn, staged.import_id)
    return campaign_id


async def start(conn: Connection, *campaign_ids: int) -> None:
    for campaign_id in campaign_ids:
        await campaigns.change(conn, campaign_id, "Started")
