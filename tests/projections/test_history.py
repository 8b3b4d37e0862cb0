"""One delivery's events, in their order and in their public form."""

import pytest

from postledger.projections.history import history
from tests import campaigns
from tests.campaigns import claim, enlist, failed, sent, settle, started


async def test_everything_about_one_delivery_in_order(app):
    campaign = await started(app, 2)
    worker = await enlist(app)
    first, other = (await claim(app, campaign, worker)).rows
    await settle(app, campaign, [sent(first), sent(other)])
    items = await history(app, campaign, first.delivery_id)
    assert [(item["version"], item["type"]) for item in items] == [(1, "Queued"), (2, "Claimed"), (3, "Sent")]
    assert items[2] == {
        "position": str(
            await app.fetchval("SELECT position FROM events WHERE type = 'Sent' ORDER BY position LIMIT 1")
        ),
        "block": None,
        "campaign_id": str(campaign),
        "delivery_id": str(first.delivery_id),
        "version": 3,
        "type": "Sent",
        "at": await app.fetchval("SELECT rfc3339(min(at)) FROM events WHERE type = 'Sent'"),
        "body": {"attempt": 1, "provider": "null", "message_id": f"{first.delivery_id}@example.org"},
    }


async def test_what_has_no_version_stands_where_it_came(app):
    campaign = await started(app, 1, unknown="hold")
    [row] = (await claim(app, campaign, await enlist(app))).rows
    claimed = await app.fetchval("SELECT claim_id FROM claims")
    await app.execute("SELECT end_claim($1, $2, 'OutcomeUnknown', 'worker_lost')", campaign, claimed)
    await settle(app, campaign, [failed(row)])
    await settle(app, campaign, [sent(row)])
    await app.execute(
        "INSERT INTO events (campaign_id, delivery_id, type, body) VALUES ($1, $2, 'Delivered', '{}')",
        campaign,
        row.delivery_id,
    )
    assert [(item["version"], item["type"]) for item in await history(app, campaign, row.delivery_id)] == [
        (1, "Queued"),
        (2, "Claimed"),
        (3, "OutcomeUnknown"),
        (None, "Evidence"),
        (4, "Sent"),
        (None, "Delivered"),
    ]


@pytest.mark.parametrize(
    ("body", "shown"), [('{"to": 1.5}', {"to": 1.5}), ('{"to": 1e999}', {"unreadable": '{"to": 1' + "0" * 999 + "}"})]
)
async def test_an_event_that_cannot_be_read_is_shown_as_it_stands(app, body, shown):
    campaign = await started(app, 1)
    delivery = await app.fetchval("SELECT delivery_id FROM recipient_queue")
    insert = "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
    await app.execute(f"{insert} VALUES ($1, $2, 2, 'Teleported', '{body}')", campaign, delivery)
    last = (await history(app, campaign, delivery))[-1]
    assert (last["type"], last["body"]) == ("Teleported", shown)


async def test_a_delivery_that_the_log_does_not_know_has_none(app):
    assert await history(app, await campaigns.draft(app), 999) == []
