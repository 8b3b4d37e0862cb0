"""Every state with every event: what one side refuses, the other refuses too, and what both allow leads to the same."""

import asyncpg
import pytest

from postledger.events.machines import CampaignStatus, DeliveryStatus, campaign_after, delivery_after
from postledger.events.types import EVENTS, StreamKind
from postledger.ledger.queue import Delivery, Outcome, Settled
from postledger.projections.verify import verify
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, people, sent, settle, skipped, unknown

DELIVERY_EVENTS = [cls.type for cls in EVENTS if cls.stream is StreamKind.DELIVERY]
CAMPAIGN_EVENTS = [cls.type for cls in EVENTS if cls.stream is StreamKind.CAMPAIGN]
OUTCOMES = {type_ for type_ in DELIVERY_EVENTS if delivery_after(DeliveryStatus.SENDING, type_)}

DUE_AT = "2026-11-30T12:00:00.000000Z"
BODIES = {
    "Changed": {"fields": []},
    "RecipientsAdded": {"source": "test", "counts": {}},
    "Scheduled": {"due_at": DUE_AT},
    "Completed": {"counts": {}},
    "Reopened": {"by": "test"},
    "Sent": {"attempt": 1, "provider": "null"},
    "Deferred": {"attempt": 1, "class": "retry"},
    "Released": {"reason": "shutdown"},
    "Failed": {"attempt": 1, "class": "permanent"},
    "OutcomeUnknown": {"attempt": 1, "reason": "lost"},
    "Skipped": {"reason": "expired"},
}


def sqlstate(error):
    return error.value.sqlstate


async def delivery_in(conn, status, name):
    """A campaign with one delivery that the calls brought into this state; and that as its worker knows it."""
    campaign = await campaigns.draft(conn, name, unknown="hold")
    await campaigns.enqueue(conn, campaign, people(1))
    await campaigns.change(conn, campaign, "Started")
    ways = {"sent": sent, "failed": failed, "skipped": skipped, "unknown": unknown, "cancelled": deferred}
    if status == "pending":
        id_ = await conn.fetchval("SELECT delivery_id FROM recipient_queue WHERE campaign_id = $1", campaign)
        return campaign, Delivery(campaign, id_, campaigns.uuid.uuid4(), 1, 1)
    [row] = (await claim(conn, campaign, await enlist(conn))).rows
    if status in ways:
        await settle(conn, campaign, [ways[status](row)])
    if status == "cancelled":
        await campaigns.change(conn, campaign, "Cancelled")
        assert (await claim(conn, campaign, await enlist(conn))).cancelled == 1
    return campaign, row


async def row_of(conn, campaign):
    return await conn.fetchrow(
        "SELECT status::text, attempt, due_at, version FROM recipient_queue WHERE campaign_id = $1", campaign
    )


@pytest.mark.parametrize("machine", ["delivery", "campaign"])
async def test_the_same_pairs_are_allowed(app, machine):
    statuses, after = (DeliveryStatus, delivery_after) if machine == "delivery" else (CampaignStatus, campaign_after)
    for event in {*DELIVERY_EVENTS, *CAMPAIGN_EVENTS, "Teleported"}:
        for status in [None, *statuses]:
            call = app.fetchval("SELECT next_status($1, $2, $3)", machine, event, status or "")
            if after(status, event) is not None:
                assert await call == after(status, event)
                continue
            with pytest.raises(asyncpg.PostgresError) as error:
                await call
            assert sqlstate(error) == "PL004", (event, status)


@pytest.mark.parametrize("status", DeliveryStatus, ids=str)
async def test_a_delivery_takes_the_outcomes_that_its_state_allows(app, status):
    """In time where it is being sent, else late: then a Sent counts where the table has it, the rest is evidence."""
    for event in DELIVERY_EVENTS:
        campaign, row = await delivery_in(app, status, f"{status} {event}")
        assert (await row_of(app, campaign))["status"] == status
        version = await app.fetchval("SELECT version FROM recipient_queue WHERE campaign_id = $1", campaign)
        known = Delivery(campaign, row.delivery_id, campaigns.uuid.uuid4(), version, 1)
        if status == "sending":
            known = row
        before, call = (
            await row_of(app, campaign),
            settle(app, campaign, [Outcome(known, event, BODIES.get(event, {}))]),
        )
        if event not in OUTCOMES:
            with pytest.raises(asyncpg.PostgresError) as error:
                await call
            assert sqlstate(error) == "PL004", event
            assert await row_of(app, campaign) == before
            continue
        settled, after = await call, await row_of(app, campaign)
        target = delivery_after(status, event)
        if status == "sending" or (event == "Sent" and target is not None):
            assert (settled, after["status"], after["version"]) == (Settled(applied=1), target, version + 1), event
        else:
            assert (settled, after) == (Settled(evidence=1), before), event
        assert (await verify(app, campaign)).differences == [], event


@pytest.mark.parametrize("status", DeliveryStatus, ids=str)
async def test_what_the_queue_itself_does_goes_by_the_table(app, status):
    """Claimed, Requeued, Cancelled and Skipped have calls of their own, which take rows in the right state alone."""
    for event in ("Claimed", "Requeued", "Cancelled", "Skipped"):
        campaign, row = await delivery_in(app, status, event)
        before, target = await row_of(app, campaign), delivery_after(status, event)
        if event == "Requeued":
            if status == "cancelled":  # its campaign is, too
                continue
            assert await app.fetchval("SELECT requeue($1, $2, 'x', 'y')", campaign, [row.delivery_id]) == bool(target)
        if event == "Cancelled" and status != "cancelled":
            await campaigns.change(app, campaign, "Cancelled")
        if event == "Skipped":
            if status == "sending":  # that is the worker's to say
                continue
            await app.execute("SELECT suppress('p1@example.org', 'operator', 'test')")
        if event != "Requeued":
            await claim(app, campaign, await enlist(app))
        after = await row_of(app, campaign)
        assert after["status"] == (target or status), event
        assert after["version"] == before["version"] + (target is not None)
        assert (await verify(app, campaign)).differences == [], event
        await app.execute("DELETE FROM suppressions")


async def campaign_in(conn, status, name):
    ways = {
        "draft": [],
        "scheduled": ["Scheduled"],
        "sending": ["Started"],
        "paused": ["Started", "Paused"],
        "completed": ["Started", "Completed"],
        "cancelled": ["Cancelled"],
    }
    campaign = await campaigns.draft(conn, name)
    for event in ways[status]:
        await campaigns.change(conn, campaign, event, BODIES.get(event))
    return campaign


@pytest.mark.parametrize("status", CampaignStatus, ids=str)
async def test_a_campaign_takes_the_events_that_its_state_allows(app, status):
    for event in [*CAMPAIGN_EVENTS, "Queued", "Teleported", ""]:
        campaign = await campaign_in(app, status, event)
        before = await app.fetchrow("SELECT * FROM campaigns WHERE id = $1", campaign)
        assert before["status"] == status
        target = campaign_after(status, event)
        if target is None:
            with pytest.raises(asyncpg.PostgresError) as error:
                await campaigns.change(app, campaign, event, BODIES.get(event))
            assert sqlstate(error) == "PL004", event
            assert await app.fetchrow("SELECT * FROM campaigns WHERE id = $1", campaign) == before
        else:
            version = await campaigns.change(app, campaign, event, BODIES.get(event))
            after = await app.fetchrow("SELECT status, version FROM campaigns WHERE id = $1", campaign)
            assert tuple(after) == (target, version) == (target, before["version"] + 1), event
        assert (await verify(app, campaign)).differences == [], event


async def test_a_command_for_another_version_is_refused(app):
    campaign = await campaign_in(app, "draft", "spring")
    with pytest.raises(asyncpg.PostgresError) as error:
        await app.execute("SELECT change_campaign($1, 'Started', '{}', 2)", campaign)
    assert sqlstate(error) == "PL005"
    assert await app.fetchval("SELECT change_campaign($1, 'Started', '{}', 1)", campaign) == 2


@pytest.mark.parametrize(
    "call",
    [
        "change_campaign(77, 'Started')",
        "requeue(77, NULL, 'x', 'y')",
        "enqueue_import(77, 1)",
    ],
)
async def test_a_campaign_that_is_not_there_is_refused(app, call):
    with pytest.raises(asyncpg.PostgresError) as error:
        await app.execute(f"SELECT {call}")
    assert sqlstate(error) == "PL001"
