"""What happened and whether it is so: deliveries, histories, replay, as-of and verify over HTTP."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from postledger.database import Connection
from postledger.http.api import audit
from postledger.ledger.sealing import seal_all
from postledger.projections.history import history as read_history
from tests.campaigns import claim, enlist, failed, sent, settle, started
from tests.web.conftest import Api

LETTER = "INSERT INTO templates (hash, subject, html) VALUES ('letter', 'Hello', '<p>Hello</p>') ON CONFLICT DO NOTHING"


@pytest.fixture
async def campaign(db: Connection) -> int:
    """Two people, one sent, one failed; sealed."""
    await db.execute(LETTER)
    campaign = await started(db, 2)
    got = await claim(db, campaign, await enlist(db))
    first, second = got.rows
    await settle(db, campaign, [sent(first), failed(second)])
    await seal_all(db)
    return campaign


async def ids_of(db: Connection, campaign: int) -> list[int]:
    rows = await db.fetch("SELECT delivery_id FROM recipients WHERE campaign_id = $1 ORDER BY delivery_id", campaign)
    return [row["delivery_id"] for row in rows]


async def test_a_delivery_says_how_it_stands(api: Api, db: Connection, campaign: int) -> None:
    other = await started(db, 3, "other")
    first, second = await ids_of(db, campaign)
    found = (await api.get(f"/v1/deliveries/{first}")).json
    assert found["campaign"] == {"id": str(campaign), "name": "spring"}
    assert (found["key"], found["email"], found["data"]) == ("k1", "p1@example.org", {"n": 2})
    assert (found["status"], found["attempt"], found["message_id"]) == ("sent", 1, f"{first}@example.org")
    assert found["sent_at"]
    assert (await api.get(f"/v1/deliveries/{second}")).json.items() >= {"status": "failed", "last_code": "550"}.items()
    waiting = (await api.get(f"/v1/deliveries/{(await ids_of(db, other))[2]}")).json
    assert (waiting["campaign"]["name"], waiting["status"], waiting["sent_at"]) == ("other", "pending", None)


@pytest.mark.parametrize("id_", ["0", "999999", "9" * 18, "x", "-1", "1" * 30])
async def test_what_is_no_delivery_is_not_found(api: Api, id_: str) -> None:
    for path in (f"/v1/deliveries/{id_}", f"/v1/deliveries/{id_}/history"):
        assert (await api.get(path)).problem == (404, "not-found")


async def test_a_history_is_the_log_s(api: Api, db: Connection, campaign: int) -> None:
    first, _ = await ids_of(db, campaign)
    found = (await api.get(f"/v1/deliveries/{first}/history")).json
    assert [event["type"] for event in found["items"]] == ["Queued", "Claimed", "Sent"]
    assert found["items"] == await read_history(db, campaign, first)
    assert found["recipient"] == {"delivery_id": str(first), "key": "k1", "email": "p1@example.org"}
    for word in ("k1", "P1@example.org", str(first)):
        again = await api.post("/v1/audit/history", {"campaign": "spring", "recipient": word})
        assert again.json == found


async def test_nobody_of_that_name_has_no_history(api: Api, campaign: int) -> None:
    for body in ({"campaign": "spring", "recipient": "nobody"}, {"campaign": "autumn", "recipient": "k1"}):
        assert (await api.post("/v1/audit/history", body)).problem == (404, "not-found")


async def test_a_replay_gives_every_event_with_the_state_after_it(api: Api, db: Connection, campaign: int) -> None:
    found = await api.get(f"/v1/audit/campaigns/{campaign}/replay")
    assert found.headers["Content-Type"] == "application/x-ndjson"
    steps = [json.loads(line) for line in found.content.splitlines()]
    count = await db.fetchval("SELECT count(*) FROM events WHERE campaign_id = $1", campaign)
    assert len(steps) == count
    assert all(step.keys() == {"event", "state"} for step in steps)
    assert {step["state"]["status"] for step in steps[-2:]} == {"sent", "failed"}
    assert (await api.get("/v1/audit/campaigns/99/replay")).problem == (404, "not-found")


async def test_a_replay_ends_where_an_event_cannot_stand(api: Api, db: Connection, campaign: int) -> None:
    first, _ = await ids_of(db, campaign)
    await db.execute(
        "INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES ($1, $2, 4, 'Deferred', $3)",
        campaign,
        first,
        {"attempt": 1, "class": "retry", "code": "450", "due_at": "2026-01-01T00:00:00.000000Z"},
    )
    lines = (await api.get(f"/v1/audit/campaigns/{campaign}/replay")).content.splitlines()
    problem = json.loads(lines[-1])["problem"]
    assert problem["type"] == "/problems/conflict"
    assert "Deferred" in problem["detail"]
    verified = (await api.get(f"/v1/audit/campaigns/{campaign}/verify")).json
    assert not verified["equal"]
    assert verified["differences"][0]["delivery_id"] == str(first)


async def test_as_of_a_time(api: Api, db: Connection, campaign: int) -> None:
    now = datetime.now(UTC).isoformat()
    found = (await api.get(f"/v1/audit/campaigns/{campaign}/as-of", params={"at": now})).json
    assert (found["counts"]["sent"], found["counts"]["failed"]) == (1, 1)
    assert isinstance(found["block"], str)
    before = await api.get(f"/v1/audit/campaigns/{campaign}/as-of", params={"at": "2020-01-01T00:00:00Z"})
    assert (before.json["block"], sum(before.json["counts"].values())) == (None, 0)
    for params in ({}, {"at": "yesterday"}, {"at": "2026-01-01 09:00"}):
        wrong = await api.get(f"/v1/audit/campaigns/{campaign}/as-of", params=params)
        assert wrong.problem == (422, "invalid")
        assert wrong.json["field"] == "at"


async def test_everything_is_as_the_log_says(api: Api, campaign: int) -> None:
    for path in (f"/v1/audit/campaigns/{campaign}/verify", "/v1/audit/verify"):
        found = (await api.get(path)).json
        assert (found["equal"], found["checked"], found["differences"]) == (True, 2, [])
    assert (await api.get("/v1/audit/campaigns/99/verify")).problem == (404, "not-found")


async def test_audits_wait_for_nobody(api: Api, campaign: int) -> None:
    turn = api.app[audit.AUDITS]
    for _ in range(audit.AT_ONCE):
        await turn.acquire()
    found = await api.get("/v1/audit/verify")
    assert found.problem == (429, "too-many-requests")
    assert found.headers["Retry-After"]
    turn.release()
    assert (await api.get("/v1/audit/verify")).status == 200
