"""Whoever may do everything in the database still leaves traces: each kind of tampering is found, and named."""

from datetime import timedelta

import pytest

from postledger.ledger.sealing import seal
from postledger.projections.verify import verify
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, sent, settle, started

HOUR = timedelta(hours=1)

SENT, WAITING, SENDING = range(3)


@pytest.fixture
async def campaign(owner):
    """Three people: one has the mail, one waits to be tried again, one is being sent; nothing is guarded any more."""
    campaign = await started(owner, 3)
    rows = (await claim(owner, campaign, await enlist(owner))).rows
    await settle(owner, campaign, [sent(rows[SENT]), deferred(rows[WAITING], HOUR)])
    await owner.execute("SELECT suppress('foe@example.org', 'operator', 'cli')")
    assert (await verify(owner, None)).equal
    await owner.execute("ALTER TABLE events_1 DISABLE TRIGGER USER")
    return campaign


async def delivery_ids(conn, campaign):
    rows = await conn.fetch("SELECT delivery_id FROM recipient_queue WHERE campaign_id = $1 ORDER BY 1", campaign)
    return [row[0] for row in rows]


async def found(conn, campaign):
    """What verify finds: (position, expected, actual)."""
    verification = await verify(conn, campaign)
    assert verification.equal == (not verification.differences)
    assert verification.found == len(verification.differences)
    return [(d.delivery_id, d.position, d.expected, d.actual) for d in verification.differences]


# One row of the queue altered: who, what, and what is said about it.
ALTERED = {
    "status": (SENT, "status = 'failed'", "failed, attempt 1, version 3"),
    "attempt": (SENT, "attempt = 2", "sent, attempt 2, version 3"),
    "version": (SENT, "version = 4", "sent, attempt 1, version 4"),
    "sent again": (
        SENT,
        "status = 'pending', due_at = '2026-11-30 12:00Z'",
        "pending, attempt 1, version 3, due 2026-11-30T12:00:00.000000Z",
    ),
    "due_at": (
        WAITING,
        "due_at = '2026-11-30 12:00:00.000001Z'",
        "pending, attempt 1, version 3, due 2026-11-30T12:00:00.000001Z",
    ),
}


@pytest.mark.parametrize(("who", "change", "actual"), ALTERED.values(), ids=ALTERED)
async def test_an_altered_row_of_the_queue_is_found(owner, campaign, who, change, actual):
    delivery = (await delivery_ids(owner, campaign))[who]
    last = await owner.fetchrow("SELECT position, body FROM events WHERE delivery_id = $1 AND version = 3", delivery)
    await owner.execute(f"UPDATE recipient_queue SET {change} WHERE delivery_id = $1", delivery)
    expected = (
        "sent, attempt 1, version 3" if who == SENT else f"pending, attempt 1, version 3, due {last['body']['due_at']}"
    )
    assert await found(owner, campaign) == [(delivery, last["position"], expected, actual)]


async def test_a_moment_is_compared_to_the_microsecond(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[WAITING]
    await owner.execute("UPDATE recipient_queue SET due_at = due_at + '1 microsecond' WHERE delivery_id = $1", delivery)
    assert [row[0] for row in await found(owner, campaign)] == [delivery]


async def test_a_pending_row_without_a_moment_is_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[WAITING]
    await owner.execute("ALTER TABLE recipient_queue DROP CONSTRAINT recipient_queue_due_iff_pending")
    await owner.execute("UPDATE recipient_queue SET due_at = NULL WHERE delivery_id = $1", delivery)
    [(who, _, _, actual)] = await found(owner, campaign)
    assert (who, actual) == (delivery, "pending, attempt 1, version 3")


async def test_a_row_that_is_gone_is_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute("DELETE FROM recipient_queue WHERE delivery_id = $1", delivery)
    assert await found(owner, campaign) == [
        (delivery, await position(owner, delivery, 3), "sent, attempt 1, version 3", "no row in recipient_queue")
    ]
    assert (await verify(owner, campaign)).total == 3


async def test_a_row_that_the_log_does_not_know_is_found(owner, campaign):
    await owner.execute("INSERT INTO recipient_queue VALUES ($1, 999999, 'sent', 1, NULL, 3)", campaign)
    assert await found(owner, campaign) == [(999999, None, "no row in recipient_queue", "sent, attempt 1, version 3")]


async def test_a_person_smuggled_in_behind_the_log_is_found(owner, campaign):
    await owner.execute(
        "INSERT INTO recipients SELECT $1, 999999, 'new', 'new@example.org', NULL, '{}', 's',"
        " address_hash('new@example.org'), address_hash('new@example.org')",
        campaign,
    )
    [(who, _, expected, _)] = await found(owner, campaign)
    assert (who, expected) == (999999, "nobody: no Queued event seals a recipient")


# The log itself.

REMOVED = {"first": (1, 2, "version 1", "Claimed with version 2"), "middle": (2, 3, "version 2", "Sent with version 3")}


@pytest.mark.parametrize(("version", "blamed", "expected", "actual"), REMOVED.values(), ids=REMOVED)
async def test_an_event_that_is_gone_leaves_a_gap(owner, campaign, version, blamed, expected, actual):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute("DELETE FROM events WHERE delivery_id = $1 AND version = $2", delivery, version)
    assert (delivery, await position(owner, delivery, blamed), expected, actual) in await found(owner, campaign)


async def test_a_last_event_that_is_gone_leaves_its_row_ahead(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute("DELETE FROM events WHERE delivery_id = $1 AND version = 3", delivery)
    assert await found(owner, campaign) == [
        (
            delivery,
            await position(owner, delivery, 2),
            "sending, attempt 0, version 2",
            "sent, attempt 1, version 3",
        )
    ]


async def test_a_delivery_whose_events_are_all_gone_is_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute("DELETE FROM events WHERE delivery_id = $1", delivery)
    row, person = await found(owner, campaign)
    assert row == (delivery, None, "no row in recipient_queue", "sent, attempt 1, version 3")
    assert person[:3] == (delivery, None, "nobody: no Queued event seals a recipient")


INSERTED = {
    "illegal": ('4, \'Failed\', \'{"attempt": 1, "class": "late"}\'', "an event that may follow sent", "Failed"),
    "twice": ('5, \'Sent\', \'{"attempt": 1, "provider": "x"}\'', "version 4", "Sent with version 5"),
    "without a version": (
        'NULL, \'Sent\', \'{"attempt": 1, "provider": "x"}\'',
        "version 4",
        "Sent with version none",
    ),
    "unknown": ("4, 'Teleported', '{}'", "an event that can be read", "event Teleported cannot be read: "),
    "of another stream": ("4, 'Paused', '{}'", "an event that can be read", "event Paused cannot be read: "),
    "missing a field": ("4, 'Requeued', '{}'", "an event that can be read", "event Requeued cannot be read: "),
    "evidence with a version": (
        "4, 'Delivered', '{}'",
        "version none",
        "Delivered with version 4",
    ),
}


@pytest.mark.parametrize(("event", "expected", "actual"), INSERTED.values(), ids=INSERTED)
async def test_an_event_that_was_put_in_is_found(owner, campaign, event, expected, actual):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    insert = "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
    at = await owner.fetchval(f"{insert} VALUES ($1, $2, {event}) RETURNING position", campaign, delivery)
    [(who, blamed, wanted, there)] = await found(owner, campaign)
    assert (who, blamed, wanted) == (delivery, at, expected)
    assert there.startswith(actual)


async def test_an_event_that_was_put_in_cleanly_leaves_its_row_behind(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[WAITING]
    at = await owner.fetchval(
        "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
        " VALUES ($1, $2, 4, 'Cancelled', '{}') RETURNING position",
        campaign,
        delivery,
    )
    [(who, blamed, expected, _)] = await found(owner, campaign)
    assert (who, blamed, expected) == (delivery, at, "cancelled, attempt 1, version 4")


async def test_a_body_that_was_altered_beyond_reading_is_named(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    for attempt in ('"1"', "1.0", "0", "1e400", "[1]", "null"):
        change = "body = jsonb_set(body, '{attempt}', $2::text::jsonb)"
        await owner.execute(f"UPDATE events SET {change} WHERE delivery_id = $1 AND version = 3", delivery, attempt)
        [(who, at, expected, actual)] = await found(owner, campaign)
        assert (who, at, expected) == (
            delivery,
            await position(owner, delivery, 3),
            "an event that can be read",
        ), attempt
        assert actual.startswith("event Sent cannot be read: ")


async def test_an_altered_body_that_means_something_else_is_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute(
        "UPDATE events SET body = jsonb_set(body, '{attempt}', '2') WHERE delivery_id = $1 AND version = 3", delivery
    )
    [(who, _, expected, _)] = await found(owner, campaign)
    assert (who, expected) == (delivery, "sent, attempt 2, version 3")


async def test_events_whose_positions_were_swapped_are_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute(
        "UPDATE events SET position = 2000000 - position WHERE delivery_id = $1 AND version > 1", delivery
    )
    late = await position(owner, delivery, 2)
    assert await found(owner, campaign) == [
        (delivery, await position(owner, delivery, 3), f"a position above {late}", "Sent before it")
    ]


# Recipients, claims, campaigns, contacts.

ALTERED_PEOPLE = {
    "email": "email = 'other@example.org', address_hash = address_hash('other@example.org'),"
    " once_hash = address_hash('other@example.org')",
    "name": "name = 'Somebody'",
    "key": "recipient_key = 'k7'",
    "data": """data = '{"n": 3}'""",
    "salt": "salt = 'pepper'",
    "erased": "email = NULL, name = NULL, data = NULL, salt = NULL",
}


@pytest.mark.parametrize("change", ALTERED_PEOPLE.values(), ids=ALTERED_PEOPLE)
async def test_an_altered_recipient_is_named(owner, campaign, change):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    digest = await owner.fetchval("SELECT body->>'digest' FROM events WHERE delivery_id = $1 AND version = 1", delivery)
    await owner.execute(f"UPDATE recipients SET {change} WHERE delivery_id = $1", delivery)
    [(who, at, expected, actual)] = await found(owner, campaign)
    assert (who, at) == (delivery, await position(owner, delivery, 1))
    assert expected == f"the recipient sealed as {digest[:16]}"
    assert actual.startswith("one whose content gives ")


async def test_a_person_whose_contact_was_erased_is_no_difference(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute("SELECT suppress('p1@example.org', 'erased', 'cli')")
    await owner.execute(
        "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
        " SELECT 0, id, version + 1, 'Erased', '{}' FROM contacts WHERE address_hash = address_hash('p1@example.org')"
    )
    await owner.execute(
        "UPDATE contacts c SET version = e.version, erased_at = e.at, email = NULL, name = NULL, data = NULL"
        " FROM events e WHERE e.type = 'Erased' AND e.campaign_id = 0 AND e.delivery_id = c.id"
    )
    await owner.execute(
        "UPDATE recipients SET recipient_key = 'erased-1', email = NULL, name = NULL, data = NULL, salt = NULL"
        " WHERE delivery_id = $1",
        delivery,
    )
    assert (await verify(owner, None)).differences == []


async def test_a_recipient_who_is_gone_is_named(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute("DELETE FROM recipients WHERE delivery_id = $1", delivery)
    [(who, _, _, actual)] = await found(owner, campaign)
    assert (who, actual) == (delivery, "no row in recipients")


@pytest.mark.parametrize("column", ["address_hash", "once_hash"])
async def test_a_hash_that_is_not_the_address_is_named(owner, campaign, column):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await owner.execute(f"UPDATE recipients SET {column} = '\\x00' WHERE delivery_id = $1", delivery)
    assert {row[0] for row in await found(owner, campaign)} == {delivery}


async def test_a_claim_that_is_gone_leaves_its_rows_without_a_holder(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENDING]
    await owner.execute("DELETE FROM claims")
    [(who, at, expected, actual)] = await found(owner, campaign)
    assert (who, at, actual) == (delivery, await position(owner, delivery, 2), "sending in no claim")
    assert expected.startswith("claim ")


ALTERED_CLAIMS = {
    "count": ("unsettled = 2", 1),
    "nothing left": ("unsettled = 0", 1),
    "versions": ("versions = '{2, 2, 3}'", 2),
    "deliveries": ("delivery_ids = delivery_ids[1:2], versions = versions[1:2]", 2),
    "worker": ("worker_id = 77", 1),
    "id": ("claim_id = gen_random_uuid()", 1),
}


@pytest.mark.parametrize(("change", "differences"), ALTERED_CLAIMS.values(), ids=ALTERED_CLAIMS)
async def test_an_altered_claim_is_found(owner, campaign, change, differences):
    await owner.execute(f"UPDATE claims SET {change}")
    assert len(await found(owner, campaign)) == differences


async def test_a_claim_that_holds_nothing_is_found(owner, campaign):
    await owner.execute(
        "INSERT INTO claims SELECT gen_random_uuid(), worker_id, campaign_id, delivery_ids[1:1], versions[1:1],"
        " 1, now() FROM claims"
    )
    [(who, _, expected, _)] = await found(owner, campaign)
    assert who == 0
    assert expected.startswith("no claim ")


CHANGED_CAMPAIGNS = {
    "status": ("status = 'completed'", "completed, version 3"),
    "version": ("version = 4", "sending, version 4"),
    "pause": ("status = 'paused', pause_reason = 'operator'", "paused (operator), version 3"),
}


@pytest.mark.parametrize(("change", "actual"), CHANGED_CAMPAIGNS.values(), ids=CHANGED_CAMPAIGNS)
async def test_an_altered_campaign_is_found(owner, campaign, change, actual):
    await owner.execute(f"UPDATE campaigns SET {change}")
    assert (0, await position(owner, 0, 3), "sending, version 3", actual) in await found(owner, campaign)


async def test_an_altered_pause_is_found(owner, campaign):
    await campaigns.change(
        owner, campaign, "Paused", {"reason": "provider_quota", "resume_at": "2026-11-30T12:00:00.000000Z"}
    )
    await owner.execute("UPDATE campaigns SET pause_reason = 'operator', resume_at = NULL")
    expected = "paused (provider_quota) until 2026-11-30T12:00:00.000000Z, version 4"
    assert await found(owner, campaign) == [(0, await position(owner, 0, 4), expected, "paused (operator), version 4")]


async def test_rows_that_wait_in_a_completed_campaign_are_found(owner, campaign):
    rows = await delivery_ids(owner, campaign)
    await campaigns.change(owner, campaign, "Completed", {"counts": {}})
    waiting = "nothing open in a campaign that is completed"
    assert await found(owner, campaign) == [
        (rows[WAITING], None, waiting, "pending"),
        (rows[SENDING], None, waiting, "sending"),
    ]


async def test_a_campaign_that_is_gone_is_found(owner, campaign):
    await owner.execute("DELETE FROM campaigns")
    assert (0, await position(owner, 0, 3), "sending, version 3", "no row in campaigns") in await found(owner, None)


async def test_a_campaign_event_that_cannot_follow_is_found(owner, campaign):
    at = await owner.fetchval(
        "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
        " VALUES ($1, 0, 4, 'Started', '{}') RETURNING position",
        campaign,
    )
    assert await found(owner, campaign) == [(0, at, "an event that may follow sending", "Started")]


CHANGED_PEOPLE = {
    "suppression gone": ("DELETE FROM suppressions", "version 2, not suppressed"),
    "reason": (
        "UPDATE suppressions SET reason = 'complained'",
        "version 2, suppressed (complained, cli) at ",
    ),
    "version": ("UPDATE contacts SET version = 3", "version 3, suppressed (operator, cli) at "),
    "other address": (
        "UPDATE suppressions SET address_hash = '\\x00'",
        "version 2, suppressed (operator, cli) at ",
    ),
    "contact gone": (
        "ALTER TABLE suppressions DROP CONSTRAINT suppressions_contact_id_fkey; DELETE FROM contacts",
        "no row in contacts",
    ),
}


@pytest.mark.parametrize(("change", "actual"), CHANGED_PEOPLE.values(), ids=CHANGED_PEOPLE)
async def test_an_altered_suppression_is_found(owner, campaign, change, actual):
    contact = await owner.fetchval("SELECT id FROM contacts")
    await owner.execute(change)
    [(who, at, expected, there)] = await found(owner, None)
    last = await owner.fetchval("SELECT position FROM events WHERE campaign_id = 0 AND type = 'Suppressed'")
    assert (who, at) == (contact, last)
    assert expected.startswith("version 2, suppressed (operator, cli) at ")
    assert there.startswith(actual)


async def test_a_contact_event_that_cannot_stand_is_found(owner, campaign):
    contact = await owner.fetchval("SELECT id FROM contacts")
    insert = "INSERT INTO events (campaign_id, delivery_id, version, type, body)"
    await owner.execute(f"{insert} VALUES (0, $1, 3, 'ContactAdded', '{{}}')", contact)
    assert [row[2:] for row in await found(owner, None)] == [("an event that may follow a contact", "ContactAdded")]


async def test_a_gap_in_the_systems_stream_is_found(owner, campaign):
    await owner.execute("UPDATE events SET version = 2 WHERE campaign_id = 0 AND delivery_id = 0")
    [(_, _, expected, actual)] = await found(owner, None)
    assert (expected, actual) == ("version 1", "Migrated with version 2")


async def test_differences_are_counted_to_the_last_and_listed_to_a_thousand(owner):
    campaign = await started(owner, 1200)
    await owner.execute("UPDATE recipient_queue SET attempt = 7")
    verification = await verify(owner, campaign)
    assert (verification.equal, verification.found, len(verification.differences)) == (False, 1200, 1000)


async def position(conn, delivery, version):
    return await conn.fetchval(
        "SELECT position FROM events WHERE delivery_id = $1 AND version = $2 AND campaign_id > 0", delivery, version
    )


FEEDBACK = "INSERT INTO events (campaign_id, delivery_id, type, body) VALUES ($1, $2, 'Delivered', '{}')"


async def test_an_event_put_among_older_ones_is_found(owner, campaign):
    """One that changes no state, by whoever can supply a transaction's number: its block does not have it."""
    delivery = (await delivery_ids(owner, campaign))[SENT]
    assert await seal(owner) == 1
    await owner.execute(FEEDBACK, campaign, delivery)
    assert await seal(owner) == 2
    assert (await verify(owner, None)).equal
    await owner.execute(
        "INSERT INTO events (xid, campaign_id, delivery_id, type, body)"
        " SELECT xid, campaign_id, delivery_id, 'Opened', '{}' FROM events WHERE delivery_id = $1 AND type = 'Sent'",
        delivery,
    )
    position = await owner.fetchval("SELECT position FROM events WHERE type = 'Opened'")
    found_it = (delivery, position, "a place in block 1", "in no block, though its transaction is older")
    assert await found(owner, campaign) == [found_it]
    n = await owner.fetchval("SELECT n FROM blocks WHERE block_no = 1")
    assert await found(owner, None) == [found_it, (0, None, f"block 1 with {n} events", f"{n + 1} events")]


async def test_an_event_taken_out_of_its_block_is_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    await seal(owner)
    await owner.execute(FEEDBACK, campaign, delivery)
    await seal(owner)
    await owner.execute("DELETE FROM events WHERE type = 'Delivered'")
    assert await found(owner, None) == [(0, None, "block 2 with 1 events", "0 events")]


async def test_a_block_that_was_taken_away_is_found(owner, campaign):
    delivery = (await delivery_ids(owner, campaign))[SENT]
    for _ in range(3):
        await owner.execute(FEEDBACK, campaign, delivery)
        await seal(owner)
    assert (await verify(owner, None)).equal
    await owner.execute("DELETE FROM blocks WHERE block_no = 2")
    position = await owner.fetchval("SELECT max(position) FROM events WHERE xid < (SELECT max(xid) FROM events)")
    assert await found(owner, None) == [
        (delivery, position, "a place in block 3", "in no block, though its transaction is older"),
        (0, None, "block 3 with 1 events", "2 events"),
    ]
