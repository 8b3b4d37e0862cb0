"""A service with keys for all providers, and a campaign whose mails have been sent."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from attrs import evolve, frozen

from postledger.database import Connection
from tests.campaigns import change, claim, draft, enlist, enqueue, sent, settle
from tests.web.webhooks import signing
from tests.web.webhooks.service import Service, World, open_service


@frozen
class Mail:
    """One that was sent."""

    campaign: int
    delivery: int
    address: str
    message_id: str

    @property
    def reference(self) -> str:
        return f"{self.campaign}.{self.delivery}"


async def send(conn: Connection, count: int = 3, name: str = "spring") -> list[Mail]:
    """Mails of a new campaign, each with an id of the provider's own."""
    campaign = await draft(conn, name)
    await change(conn, campaign, "Started")
    await enqueue(conn, campaign, [(f"k{n}", f"p{n}@{name}.example") for n in range(count)])
    rows = (await claim(conn, campaign, await enlist(conn), count)).rows
    mails = [Mail(campaign, row.delivery_id, str(row.email), f"id-{name}-{row.delivery_id}") for row in rows]
    outcomes = [sent(row) for row in rows]
    await settle(
        conn,
        campaign,
        [
            evolve(outcome, body={**outcome.body, "message_id": mail.message_id})
            for outcome, mail in zip(outcomes, mails, strict=True)
        ],
    )
    return mails


@pytest.fixture
def world() -> World:
    return World({signing.CERTIFICATE_URL: signing.certificate()})


@pytest.fixture
async def service(database: str, world: World) -> AsyncIterator[Service]:
    async with open_service(database, signing.keys(), world) as running:
        yield running


async def log_of(conn: Connection, mail: Mail) -> list[str]:
    """What the log has of a mail beside its state."""
    rows = await conn.fetch(
        "SELECT type FROM events WHERE campaign_id = $1 AND delivery_id = $2 AND version IS NULL ORDER BY position",
        mail.campaign,
        mail.delivery,
    )
    return [row["type"] for row in rows]


async def suppressed(conn: Connection, address: str) -> str | None:
    """Why nobody writes there any more."""
    return await conn.fetchval("SELECT reason FROM suppressions WHERE address_hash = address_hash($1)", address)
