"""Outcomes that come late: a Sent counts wherever it can, the same again is ignored, all else is evidence."""

import asyncpg
import pytest
from attrs import evolve

from postledger.ledger.queue import Outcome, Settled
from postledger.projections.history import history
from postledger.projections.verify import verify
from tests.campaigns import claim, deferred, enlist, failed, released, sent, settle, skipped, started, unknown

APPLIED, REPEATED, EVIDENCE = Settled(applied=1), Settled(repeated=1), Settled(evidence=1)


@pytest.fixture
async def campaign(app):
    campaign = await started(app, 1, unknown="hold")
    yield campaign
    assert (await verify(app, campaign)).differences == []


async def claimed(conn, campaign):
    [row] = (await claim(conn, campaign, await enlist(conn))).rows
    return row


async def lost(conn, campaign, row):
    """The row's worker is taken for dead, and an operator tries again: the next attempt has the same number."""
    assert await conn.fetchval("SELECT end_claim($1, $2, 'OutcomeUnknown', 'worker_lost')", campaign, row.claim_id) == 1
    assert await conn.fetchval("SELECT requeue($1, NULL, 'asked for', 'operator')", campaign) == 1


async def types(conn, campaign, row):
    return [item["type"] for item in await history(conn, campaign, row.delivery_id)]


@pytest.mark.parametrize("make", [sent, deferred, released, failed, unknown, skipped])
async def test_the_same_again_is_ignored(app, campaign, make):
    row = await claimed(app, campaign)
    assert await settle(app, campaign, [make(row)]) == APPLIED
    before = await types(app, campaign, row)
    assert await settle(app, campaign, [make(row)]) == REPEATED
    assert await types(app, campaign, row) == before


async def test_a_late_sent_is_applied_once(app, campaign):
    row = await claimed(app, campaign)
    await lost(app, campaign, row)
    assert await settle(app, campaign, [sent(row)]) == APPLIED
    assert await settle(app, campaign, [sent(row)]) == REPEATED
    assert (await types(app, campaign, row))[-2:] == ["Requeued", "Sent"]


async def test_a_copy_that_left_under_an_older_claim_is_evidence(app, campaign):
    """Both claims were the first attempt as far as the queue counts, so their outcomes look the same."""
    first = await claimed(app, campaign)
    await lost(app, campaign, first)
    second = await claimed(app, campaign)
    assert first.attempt == second.attempt
    assert await settle(app, campaign, [sent(second)]) == APPLIED
    assert await settle(app, campaign, [sent(first)]) == EVIDENCE
    assert await settle(app, campaign, [sent(first)]) == REPEATED
    assert (await types(app, campaign, first))[-2:] == ["Sent", "Evidence"]


async def test_two_copies_that_both_come_late_are_both_in_the_log(app, campaign):
    first = await claimed(app, campaign)
    await lost(app, campaign, first)
    second = await claimed(app, campaign)
    await lost(app, campaign, second)
    assert await settle(app, campaign, [sent(second)]) == APPLIED
    assert await settle(app, campaign, [sent(first)]) == EVIDENCE
    assert [await settle(app, campaign, [sent(row)]) for row in (first, second)] == [REPEATED, REPEATED]


async def test_a_sent_that_cannot_be_applied_is_evidence(app, campaign):
    first = await claimed(app, campaign)
    await lost(app, campaign, first)
    second = await claimed(app, campaign)
    assert await settle(app, campaign, [sent(first)]) == EVIDENCE  # the second is just being sent
    assert await settle(app, campaign, [sent(second)]) == APPLIED


@pytest.mark.parametrize("make", [deferred, released, failed, unknown, skipped])
async def test_any_other_late_outcome_changes_nothing(app, campaign, make):
    row = await claimed(app, campaign)
    await settle(app, campaign, [sent(row)])
    before = await app.fetch("SELECT * FROM recipient_queue")
    assert await settle(app, campaign, [make(row)]) == EVIDENCE
    assert await settle(app, campaign, [make(row)]) == REPEATED
    assert await app.fetch("SELECT * FROM recipient_queue") == before


@pytest.mark.parametrize("type_", ["Queued", "Claimed", "Requeued", "Cancelled", "Evidence", "Delivered", "Teleported"])
async def test_what_is_no_outcome_is_refused_late_or_not(app, campaign, type_):
    row = await claimed(app, campaign)
    for _ in range(2):
        with pytest.raises(asyncpg.PostgresError) as error:
            await settle(app, campaign, [Outcome(row, type_, {})])
        assert error.value.sqlstate == "PL004"
        await settle(app, campaign, [sent(row)])


async def test_a_delivery_of_another_campaign_is_refused(app, campaign):
    other = await started(app, 1, "other")
    row = await claimed(app, campaign)
    with pytest.raises(asyncpg.PostgresError) as error:
        await settle(app, other, [sent(evolve(row, campaign_id=other))])
    assert error.value.sqlstate == "PL004"
