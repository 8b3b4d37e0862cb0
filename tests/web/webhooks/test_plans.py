"""What a post costs does not grow with the log, whatever the planner knows of it."""

from __future__ import annotations

import hashlib
import itertools
import json
from datetime import timedelta

import orjson

from postledger.ledger import feedback
from tests import campaigns
from tests.lab import Lab

# $1 campaign, $2 first delivery, $3 how many
FILL = """
    WITH people AS (
        INSERT INTO recipients (campaign_id, delivery_id, recipient_key, email, data, address_hash, once_hash)
        SELECT $1::bigint, i, 'k' || i, 'p' || i || '@example.org', '{}', address_hash('p' || i || '@example.org'), NULL
        FROM generate_series($2::bigint, $2::bigint + $3::bigint - 1) i
    ), queue AS (
        INSERT INTO recipient_queue SELECT $1, i, 'sent', 1, NULL, 3 FROM generate_series($2, $2 + $3 - 1) i
    )
    INSERT INTO events (campaign_id, delivery_id, version, type, body)
    SELECT $1, i, 3, 'Sent', jsonb_build_object('attempt', 1, 'provider', 'x', 'message_id', 'id-' || i)
    FROM generate_series($2, $2 + $3 - 1) i
"""
NUMBERS = itertools.count(1)


def items(kind: str, first: int) -> bytes:
    """Fifty things, some found by message id, some by key, some not at all."""
    rows = []
    for place in range(50):
        delivery = first + place
        message_id, reference = (f"id-{delivery}", None) if place % 3 else (None, f"k{delivery}")
        rows.append(
            {
                "payload": 1,
                "item": place,
                "provider": "sendgrid",
                "native_key": None,
                "natural_key": hashlib.sha256(str(next(NUMBERS)).encode()).hexdigest(),
                "kind": kind,
                "suppress": "complained" if place % 10 == 0 else None,
                "bounce_class": "soft" if kind == "bounced" else None,
                "event": "Delivered",
                "body": {},
                "recipient": f"p{delivery}@example.org",
                "message_id": "nobodys" if place % 17 == 0 else message_id,
                "reference": reference,
            }
        )
    return orjson.dumps(rows)


def buffers(lab: Lab, kind: str, first: int) -> int:
    """The pages that one call touches."""
    digest = str(next(NUMBERS)).encode()
    explained = lab.run(
        lab.app.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {feedback.sql.receive}",
            *(["sendgrid"], [digest], [None], [None], timedelta(hours=1), [b"x"], [None], items(kind, first)),
        )
    )
    [explained] = json.loads(explained)
    return explained["Plan"]["Shared Hit Blocks"] + explained["Plan"]["Shared Read Blocks"]


def scanned(lab: Lab) -> dict[str, int]:
    lab.run(lab.app.execute("SELECT pg_stat_force_next_flush()"))
    large = ["events_1", "recipients", "recipient_queue", "feedback", "webhook_inbox", "contacts", "suppressions"]
    rows = lab.run(lab.owner.fetch("SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname = ANY ($1)", large))
    return dict(map(tuple, rows))


def test_a_post_costs_the_same_beside_many_more_mails(lab: Lab):
    """For tables never analysed, and analysed when they were small."""
    for table in ("recipients", "recipient_queue", "events_1", "feedback"):
        lab.run(lab.owner.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)"))
    campaign = lab.run(campaigns.draft(lab.app, "spring"))
    lab.run(lab.owner.execute(FILL, campaign, 1, 5_000))
    for kind in ("delivered", "bounced"):
        buffers(lab, kind, 4_000)  # the session's caches are warm
    small = {kind: buffers(lab, kind, 100 * place) for place, kind in enumerate(("delivered", "bounced"), 1)}
    lab.run(lab.owner.execute("ANALYZE"))
    lab.run(lab.owner.execute(FILL, campaign, 5_001, 45_000))
    buffers(lab, "delivered", 30_000)  # planned anew, since ANALYZE
    before = scanned(lab)
    for place, kind in enumerate(("delivered", "bounced"), 1):
        assert buffers(lab, kind, 40_000 + 100 * place) < 1.5 * small[kind]
    lab.run(lab.app.fetchrow(feedback.sql.link, 100))
    assert scanned(lab) == before
    linked = lab.run(lab.app.fetchval("SELECT count(*) FROM feedback WHERE campaign_id IS NOT NULL"))
    assert linked > 250
