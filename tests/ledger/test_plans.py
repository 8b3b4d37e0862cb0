"""What is finished, paused or far away costs claim and settle nothing, whatever the planner knows of the tables."""

import json
from datetime import timedelta
from uuid import uuid4

import pytest

from postledger.ledger.queue import ask_permit, next_work
from tests import campaigns
from tests.campaigns import WITHIN, claim, deferred, enlist, failed, released, sent, settle, skipped, unknown

# Not `claims`: it has one row for each batch in somebody's hands, and rare calls look through all of it.
LARGE = ("recipient_queue", "recipients", "events", "events_1", "suppressions", "contacts")
LIMIT = 100

# $1 campaign, $2 how many, $3 first delivery, $4 status, $5 due_at
FILL = """
    WITH people AS (
        INSERT INTO recipients (campaign_id, delivery_id, recipient_key, email, data, address_hash, once_hash)
        SELECT $1::bigint, i, 'k' || i, 'p' || i || '@example.org', '{}', sha256(int8send(i)), sha256(int8send(i))
        FROM generate_series($3::bigint, $3::bigint + $2::bigint - 1) i
    ), log AS (
        INSERT INTO events (campaign_id, delivery_id, version, type, body)
        SELECT $1, i, 1, 'Queued', '{}' FROM generate_series($3, $3 + $2 - 1) i WHERE $4 = 'pending'
    )
    INSERT INTO recipient_queue SELECT $1, i, $4::delivery_status, 0, $5::timestamptz, 1
    FROM generate_series($3, $3 + $2 - 1) i
"""


class Tables:
    """The large tables, and what is done in them."""

    def __init__(self, lab):
        self.lab, self.app, self.run = lab, lab.app, lab.run
        self.next_delivery = 1
        self.worker = self.run(enlist(self.app))

    def campaign(self, name, event=None):
        campaign = self.run(campaigns.draft(self.app, name))
        for step in ("Started", event):
            if step:
                self.run(campaigns.change(self.app, campaign, step))
        return campaign

    def fill(self, campaign, count, status="pending", due_in=timedelta()):
        due_at = self.run(self.app.fetchval("SELECT clock() + $1", due_in)) if status == "pending" else None
        fill = self.lab.owner.execute(FILL, campaign, count, self.next_delivery, status, due_at)
        self.run(fill)
        self.next_delivery += count

    def scanned(self):
        """How often each large table was read from end to end, by anybody."""
        self.run(self.app.execute("SELECT pg_stat_force_next_flush()"))
        rows = self.run(
            self.lab.owner.fetch("SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname = ANY ($1)", LARGE)
        )
        return dict(map(tuple, rows))

    def buffers(self, campaign):
        """The pages that one claim touches."""
        self.run(claim(self.app, campaign, self.worker, LIMIT))  # the session's caches are warm
        explained = self.run(
            self.app.fetchval(
                "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM claim($1, $2, $3, $4, true)",
                *(campaign, uuid4(), self.worker, LIMIT),
            )
        )
        [explained] = json.loads(explained)
        return explained["Plan"]["Shared Hit Blocks"] + explained["Plan"]["Shared Read Blocks"]

    def hold(self, campaign):
        """Takes all that is due."""
        while self.run(claim(self.app, campaign, self.worker, 5000)).rows:
            pass

    def work(self, campaign):
        """Everything that a worker does with rows, on a hundred of them."""
        held = []
        for make in (sent, deferred, released, failed, unknown, skipped):
            claim_id = uuid4()
            rows = self.run(claim(self.app, campaign, self.worker, LIMIT, claim_id)).rows
            assert len(rows) == LIMIT
            assert len(self.run(claim(self.app, campaign, self.worker, LIMIT, claim_id)).rows) == LIMIT
            outcomes = [make(row) for row in rows]
            self.run(settle(self.app, campaign, outcomes))
            self.run(settle(self.app, campaign, outcomes[:5]))
            held += rows
        self.run(settle(self.app, campaign, [failed(row, suppress="invalid_recipient") for row in held[:3]]))
        other = self.run(enlist(self.app))
        [*rows] = self.run(claim(self.app, campaign, other, LIMIT)).rows
        self.run(settle(self.app, campaign, [failed(row, suppress="invalid_recipient") for row in rows[:5]]))
        self.run(ask_permit(self.app, other, 1, [rows[0].claim_id], [], beat=True, now=0.0, timeout=WITHIN))
        self.run(next_work(self.app, self.worker, None, timeout=WITHIN))
        assert not self.run(self.app.fetchval("SELECT finish_campaign($1)", campaign))
        assert self.run(self.app.fetchval("SELECT bury_worker($1, 1, '1 minute')", other))
        assert self.run(self.app.fetchval("SELECT reclaim($1, $2)", campaign, rows[0].claim_id)) == LIMIT - 5


@pytest.fixture(scope="module")
def tables(lab):
    for table in ("recipient_queue", "recipients", "events_1", "claims"):
        lab.run(lab.owner.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)"))
    return Tables(lab)


def test_a_claim_costs_the_same_beside_half_a_million_other_rows(tables):
    """For tables never analysed, analysed, and for a campaign younger than their statistics."""
    campaign = tables.campaign("spring")
    tables.fill(campaign, 80_000)  # enough that its indexes are as deep as they will be
    # Without any suppression a claim looks at none.
    tables.run(tables.app.fetchval("SELECT suppress('somebody@example.org', 'operator', 'test')"))
    small = tables.buffers(campaign)

    paused = tables.campaign("paused", "Paused")
    tables.fill(campaign, 300_000, "sent")
    tables.fill(paused, 100_000)
    tables.fill(campaign, 100_000, due_in=timedelta(days=1))
    never_analysed = tables.buffers(campaign)
    before = tables.scanned()
    tables.work(campaign)
    assert tables.scanned() == before

    tables.run(tables.lab.owner.execute("ANALYZE"))
    analysed = tables.buffers(campaign)
    young = tables.campaign("younger than the statistics")
    tables.fill(young, 20_000)
    before = tables.scanned()
    tables.work(campaign)
    tables.work(young)
    assert tables.scanned() == before
    assert max(never_analysed, analysed) < 1.1 * small
    assert tables.buffers(young) < 1.1 * small


def test_a_campaign_at_its_end_is_seen_to_be_so_without_reading_it(tables):
    """Statistics are of its beginning, when everything was open."""
    campaign = tables.campaign("ending")
    tables.fill(campaign, 5000)
    tables.run(tables.lab.owner.execute("ANALYZE"))
    tables.hold(campaign)
    before = tables.scanned()
    for _ in range(3):
        assert not tables.run(tables.app.fetchval("SELECT finish_campaign($1)", campaign))
    assert tables.scanned() == before
