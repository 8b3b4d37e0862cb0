"""A mail that was sent, seen from its reader's side."""

from __future__ import annotations

from attrs import frozen

from postledger.database import Connection
from postledger.ledger import campaigns
from postledger.messages.tracking import TrackedLinks
from postledger.messages.unsubscribe import make_token
from tests.campaigns import change, draft, enqueue, people
from tests.web.conftest import Api

BASE = "https://mail.shop.example"


@frozen
class Mail:
    """One person's mail of a campaign."""

    api: Api
    db: Connection
    secret: bytes
    campaign: int
    delivery: int
    list: int | None

    @property
    def path(self) -> str:
        return f"/u/{make_token(self.secret, self.campaign, self.delivery)}"

    def links(self) -> TrackedLinks:
        return TrackedLinks(BASE, self.secret, opens=True, clicks=True)

    async def events(self, *types: str) -> list[tuple[str, dict[str, str]]]:
        """Of the mail itself, in their order."""
        rows = await self.db.fetch(
            "SELECT type, body FROM events WHERE campaign_id = $1 AND delivery_id = $2 AND version IS NULL"
            " AND (type = ANY ($3) OR $3 = '{}') ORDER BY position",
            self.campaign,
            self.delivery,
            list(types),
        )
        return [(row["type"], row["body"]) for row in rows]

    async def contact_events(self) -> list[tuple[str, dict[str, str]]]:
        """Of the person."""
        rows = await self.db.fetch(
            "SELECT e.type, e.body FROM recipients r JOIN contacts k USING (address_hash) JOIN events e"
            " ON e.campaign_id = 0 AND e.delivery_id = k.id WHERE r.campaign_id = $1 AND r.delivery_id = $2"
            " ORDER BY e.position",
            self.campaign,
            self.delivery,
        )
        return [(row["type"], row["body"]) for row in rows]


async def mailed(api: Api, db: Connection, *, name: str = "spring", list_name: str | None = None) -> Mail:
    """A campaign to three people that has begun, and the mail of the first."""
    list_id = None
    await db.execute("INSERT INTO senders (name, url) VALUES ('null://', 'null://') ON CONFLICT DO NOTHING")
    await db.execute(
        "INSERT INTO templates (hash, subject, html) VALUES ('letter', 's', '<p>x') ON CONFLICT DO NOTHING"
    )
    if list_name is not None:
        list_id = await db.fetchval("INSERT INTO lists (name) VALUES ($1) RETURNING id", list_name)
    campaign = await draft(db, name)
    await db.execute("UPDATE campaigns SET list_id = $2, mail_from = $3 WHERE id = $1", campaign, list_id, SENDER)
    await enqueue(db, campaign, people(3))
    await change(db, campaign, "Started")
    delivery = await db.fetchval("SELECT min(delivery_id) FROM recipients WHERE campaign_id = $1", campaign)
    return Mail(api, db, await campaigns.secret(db, "unsubscribe"), campaign, delivery, list_id)


SENDER = '"Shop & <Co>" <news@shop.example>'
