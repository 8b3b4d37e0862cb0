"""Replay shows the state after each event, and ends where the live rows are."""

import tracemalloc
from contextlib import aclosing

import pytest

from postledger.database import Database
from postledger.events.fold import ReplayError
from postledger.events.fold import replay as fold_log
from postledger.ledger.sealing import seal
from postledger.projections.history import history
from postledger.projections.records import UnreadableEvent, read_event
from postledger.projections.replay import replay, state_json
from tests import campaigns
from tests.campaigns import claim, enlist, people, sent, settle, started, unknown

from .healthy import varied

EVENTS = """
    SELECT position, campaign_id, delivery_id, version, type, at, body::text AS body
    FROM events WHERE campaign_id = $1 ORDER BY position
"""


async def replayed(conn, campaign):
    return [pair async for pair in replay(conn, campaign)]


async def test_each_state_is_the_one_that_the_fold_has(app):
    campaign = await varied(app)
    await varied(app, "other")
    rows = await app.fetch(EVENTS, campaign)
    expected = [(str(recorded.position), state_json(state)) for recorded, state in fold_log(map(read_event, rows))]
    assert [(event["position"], state) for event, state in await replayed(app, campaign)] == expected
    assert len(expected) == len(rows) > 80


async def test_the_last_states_are_the_live_rows(app):
    campaign = await varied(app)
    last = {event["delivery_id"]: state for event, state in await replayed(app, campaign)}
    rows = await app.fetch(
        "SELECT delivery_id, status::text, attempt, rfc3339(due_at) AS due_at, version FROM recipient_queue"
    )
    assert {str(row[0]): dict(row.items()) for row in rows} == {
        delivery: {"delivery_id": int(delivery), **state} for delivery, state in last.items() if delivery != "0"
    }
    assert last["0"] == {
        "status": "sending",
        "pause": None,
        "version": await app.fetchval("SELECT version FROM campaigns"),
    }


async def test_it_goes_in_sealed_order_and_what_is_in_no_block_comes_last(app, database):
    """Across streams that is the order of commits, not of positions; within a stream they are the same."""
    campaign = await started(app, 4, unknown="hold")
    worker = await enlist(app)
    early, late, lost = [(await claim(app, campaign, worker, 1)).rows[0] for _ in range(3)]
    await seal(app)
    async with Database(database).connection() as other:
        await other.execute("BEGIN")
        await settle(other, campaign, [sent(late)])
        await settle(app, campaign, [sent(early), unknown(lost)])
        assert await seal(app) == 2
        await other.execute("COMMIT")
    await app.execute(FEEDBACK, campaign, late.delivery_id)
    assert await seal(app) == 3
    await settle(app, campaign, [sent(lost)])
    pairs = await replayed(app, campaign)
    order = [(event["block"], event["type"], event["delivery_id"], state["status"]) for event, state in pairs]
    assert order[-5:] == [
        ("2", "Sent", str(early.delivery_id), "sent"),
        ("2", "OutcomeUnknown", str(lost.delivery_id), "unknown"),
        ("3", "Sent", str(late.delivery_id), "sent"),
        ("3", "Delivered", str(late.delivery_id), "sent"),
        (None, "Sent", str(lost.delivery_id), "sent"),
    ]
    positions = [int(event["position"]) for event, _ in pairs]
    assert positions[-5] > positions[-3]
    events = await history(app, campaign, late.delivery_id)
    assert [(event["block"], event["type"]) for event in events] == [
        ("1", "Queued"),
        ("1", "Claimed"),
        ("3", "Sent"),
        ("3", "Delivered"),
    ]


FEEDBACK = "INSERT INTO events (campaign_id, delivery_id, type, body) VALUES ($1, $2, 'Delivered', '{}')"


async def test_a_pause_is_part_of_the_state(app):
    campaign = await started(app, 1)
    until = "2026-11-30T12:00:00.000000Z"
    await campaigns.change(app, campaign, "Paused", {"reason": "provider_quota", "resume_at": until})
    [*_, (event, state)] = await replayed(app, campaign)
    assert event["body"] == {"reason": "provider_quota", "resume_at": until}
    assert state == {"status": "paused", "version": 4, "pause": {"reason": "provider_quota", "resume_at": until}}


@pytest.mark.parametrize(
    ("version", "type_", "body", "error"),
    [
        (2, "Sent", '{"attempt": 1}', UnreadableEvent),
        (2, "Released", '{"reason": "x", "due_at": "2026-11-30T12:00:00.000000Z"}', ReplayError),
        (3, "Skipped", '{"reason": "x"}', ReplayError),
    ],
    ids=["unreadable", "illegal", "gap"],
)
async def test_it_stops_at_the_first_event_that_cannot_stand(app, version, type_, body, error):
    campaign = await started(app, 2)
    delivery = await app.fetchval("SELECT max(delivery_id) FROM recipient_queue")
    at = await app.fetchval(
        "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
        " VALUES ($1, $2, $3, $4, $5::text::jsonb) RETURNING position",
        *(campaign, delivery, version, type_, body),
    )
    await campaigns.change(app, campaign, "Paused")
    seen = []

    async def read():
        async for event, _ in replay(app, campaign):
            seen.append(event["type"])

    with pytest.raises(error, match=f"^event {at} "):
        await read()
    assert seen == ["Drafted", "Queued", "Queued", "RecipientsAdded", "Started"]
    assert not app.is_in_transaction()


async def test_it_may_be_left_early(app):
    campaign = await started(app, 10)
    async with aclosing(replay(app, campaign)) as events:
        async for _ in events:
            break
    assert not app.is_in_transaction()


async def test_memory_does_not_grow_with_the_audience(app):
    peaks = []
    for count in (1500, 6000):
        campaign = await campaigns.draft(app, str(count))
        await campaigns.enqueue(app, campaign, people(count))
        tracemalloc.start()
        try:
            async for _ in replay(app, campaign):
                pass
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] + (1 << 18)
