"""The views for people with psql, in words."""

from datetime import timedelta

from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, people, released, sent, settle, started, unknown
from tests.clock import NOON, set_clock, stop_clock

HOUR = timedelta(hours=1)
SHOWN = 'SELECT key, address, status, attempt, last_code, sent_at, feedback FROM deliveries ORDER BY key COLLATE "C"'


async def test_every_delivery_says_in_words_where_it_stands(app, owner):
    await stop_clock(owner)
    await app.execute("SELECT suppress('p9@example.org', 'complained', 'test')")
    campaign = await started(app, 9, unknown="hold")
    await campaigns.enqueue(app, campaign, people(1, first=10))
    rows = (await claim(app, campaign, await enlist(app), 7)).rows
    await set_clock(owner, NOON + HOUR)
    outcomes = (sent, deferred, failed, unknown, released, sent)
    await settle(app, campaign, [make(row) for make, row in zip(outcomes, rows, strict=False)])
    await app.execute(
        "INSERT INTO events (campaign_id, delivery_id, type, body)"
        " SELECT $1, $2, f, '{}' FROM unnest('{Opened, Delivered, Complained, Bounced}'::text[]) f",
        campaign,
        rows[0].delivery_id,
    )
    insert = "INSERT INTO events (campaign_id, delivery_id, type, body) VALUES ($1, $2, 'Opened', '{}')"
    await app.execute(insert, campaign, rows[5].delivery_id)
    at = NOON + HOUR
    assert [tuple(row) for row in await app.fetch(SHOWN)] == [
        ("k1", "p1@example.org", "sent", 1, None, at, "complained"),
        ("k10", "p10@example.org", "waiting", 0, None, None, None),
        ("k2", "p2@example.org", "waiting to be tried again", 1, "450", None, None),
        ("k3", "p3@example.org", "failed", 1, "550", None, None),
        ("k4", "p4@example.org", "outcome unknown", 1, "lost", None, None),
        ("k5", "p5@example.org", "waiting", 0, "shutdown", None, None),
        ("k6", "p6@example.org", "sent", 1, None, at, "delivered"),
        ("k7", "p7@example.org", "being sent", 0, None, None, None),
        ("k8", "p8@example.org", "waiting", 0, None, None, None),
        ("k9", "p9@example.org", "skipped", 0, "complained", None, None),
    ]
    await campaigns.change(app, campaign, "Cancelled")
    await claim(app, campaign, await enlist(app))
    waiting = "SELECT DISTINCT status FROM deliveries WHERE key IN ('k10', 'k2', 'k5', 'k8')"
    assert [row[0] for row in await app.fetch(waiting)] == ["cancelled"]


async def test_a_campaigns_seven_counts_sum_to_its_audience(app):
    await started(app, 4)
    await campaigns.draft(app, "empty")
    progress = {row["campaign"]: row for row in await app.fetch("SELECT * FROM campaign_progress")}
    counts = ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")
    assert [progress["spring"][name] for name in ("audience", *counts)] == [4, 4, 0, 0, 0, 0, 0, 0]
    assert [progress["empty"][name] for name in ("audience", *counts)] == [0] * 8
    assert (progress["spring"]["status"], progress["empty"]["status"]) == ("sending", "draft")
