"""The other commands: what they answer to people and to programs."""

import json

import pytest

from postledger.database import SCHEMA_VERSION

from .conftest import Desk


@pytest.fixture
def spring(desk: Desk) -> Desk:
    """With a campaign `spring` of three people, started and unsent."""
    desk.shell.people(3)
    ran = desk.send("people.csv", "--no-wait", name="spring")
    assert ran.code == 0
    return desk


def test_pause_resume_cancel(spring: Desk) -> None:
    paused = spring.run("campaign", "pause", "spring", "--json").document
    assert (paused["status"], paused["pause"]) == ("paused", {"reason": "operator", "resume_at": None})
    again = spring.run("campaign", "pause", "1")
    assert (again.code, "is paused already" in again.out) == (0, True)
    resumed = spring.run("campaign", "resume", "spring", "--json").document
    assert (resumed["status"], resumed["pause"]) == ("sending", None)
    cancelled = spring.run("campaign", "cancel", "spring", "--json").document
    assert (cancelled["status"], cancelled["counts"]["cancelled"]) == ("cancelled", 3)
    refused = spring.run("campaign", "resume", "spring")
    assert (refused.code, "is cancelled" in refused.complaint) == (65, True)
    assert spring.run("campaign", "retry", "spring").code == 65
    spring.verified()


def test_lists_by_page(spring: Desk) -> None:
    spring.send("people.csv", "--no-wait", name="summer")
    first = spring.run("campaign", "list", "--limit", "1", "--json").document
    assert [item["name"] for item in first["items"]] == ["summer"]
    second = spring.run("campaign", "list", "--limit", "1", "--after", first["next"], "--json").document
    assert [item["name"] for item in second["items"]] == ["spring"]
    assert second["next"] is None
    assert "summer" in spring.run("campaign", "list").out
    assert spring.run("campaign", "list", "--after", "x").code == 65


def test_recipients(spring: Desk) -> None:
    ran = spring.run("campaign", "recipients", "spring", "--status", "pending", "--limit", "2", "--json")
    page = ran.document
    assert [item["key"] for item in page["items"]] == ["k0", "k1"]
    (person, _) = page["items"]
    assert isinstance(person["delivery_id"], str)
    assert (person["email"], person["status"], person["attempt"]) == ("p0@example.org", "pending", 0)
    assert person["feedback"] is None
    rest = spring.run("campaign", "recipients", "spring", "--after", page["next"], "--json")
    assert [item["key"] for item in rest.document["items"]] == ["k2"]
    assert spring.run("campaign", "recipients", "spring", "--status", "sent", "--json").document["items"] == []


def test_history_and_replay(spring: Desk) -> None:
    spring.run("work", "--until-idle")
    for word in ("k1", "P1@example.org"):
        found = spring.run("audit", "history", "spring", word, "--json").document
        assert [event["type"] for event in found["items"]] == ["Queued", "Claimed", "Sent"]
        assert {"position", "block", "campaign_id", "delivery_id", "version", "type", "at", "body"} == set(
            found["items"][0]
        )
    assert (found["campaign"]["name"], found["recipient"]["key"]) == ("spring", "k1")
    ran = spring.run("audit", "replay", "spring")
    steps = [json.loads(line) for line in ran.out.splitlines()]
    assert [set(step) for step in steps] == [{"event", "state"}] * len(steps)
    assert (steps[0]["event"]["type"], steps[-1]["event"]["type"]) == ("Drafted", "Completed")
    assert steps[-1]["state"]["status"] == "completed"
    assert "Sent" in spring.run("audit", "history", "spring", "k1").out
    missing = spring.run("audit", "history", "spring", "nobody")
    assert (missing.code, "'nobody'" in missing.complaint) == (65, True)


def test_verify_finds_drift(spring: Desk) -> None:
    spring.sql("UPDATE postledger.recipient_queue SET attempt = 7 WHERE delivery_id % 3 = 0")
    ran = spring.run("audit", "verify", "spring", "--json")
    assert ran.code == 1
    assert (ran.document["equal"], ran.document["total"]) == (False, 3)
    (difference,) = ran.document["differences"]
    assert set(difference) == {"campaign_id", "delivery_id", "position", "expected", "actual"}
    assert "1 differences" in spring.run("audit", "verify").out


def test_migrate_may_be_repeated(empty_database: str, desk: Desk) -> None:
    for _ in range(2):
        ran = desk.run("migrate", "--database", empty_database, "--schema", "letters", "--json")
        assert (ran.code, ran.document) == (0, {"schema": "letters", "version": SCHEMA_VERSION})


def test_doctor(spring: Desk, empty_database: str) -> None:
    well = spring.run("doctor", "--json")
    assert well.code == 0
    assert [check["name"] for check in well.document["checks"]] == [
        *(
            "connection",
            "version",
            "encoding",
            "schema",
            "role",
            "epoch",
            "blocks",
            "webhooks",
            "notifications",
            "provider",
        )
    ]
    assert all(set(check) == {"name", "ok", "detail", "remedy"} for check in well.document["checks"])
    relay = spring.run("doctor", "--via", "smtp://127.0.0.1:1?starttls=off", "--json")
    assert (relay.code, relay.document["checks"][-1]["ok"]) == (69, False)
    bare = spring.run("doctor", "--database", empty_database, "--json")
    assert bare.code == 78
    assert bare.document["checks"][-1]["name"] == "schema"
    assert "migrate" in bare.document["checks"][-1]["remedy"]
    away = spring.run("doctor", "--database", "postgresql://127.0.0.1:1/x")
    assert (away.code, "WRONG connection" in away.out) == (69, True)


def test_doctor_leaves_out_relays_of_campaigns_that_are_over(spring: Desk) -> None:
    spring.run("campaign", "cancel", "spring")
    checks = spring.run("doctor", "--json").document["checks"]
    assert "provider" not in [check["name"] for check in checks]


def test_doctor_finds_a_role_that_may_change_the_log(spring: Desk) -> None:
    spring.sql("GRANT UPDATE (body) ON postledger.events TO postledger_app")
    ran = spring.run("doctor", "--json")
    assert (ran.code, ran.document["checks"][-1]["name"]) == (78, "role")


@pytest.mark.parametrize("command", [[], ["send"], ["campaign"], ["campaign", "recipients"], ["audit", "verify"]])
def test_help_teaches(desk: Desk, command: list[str]) -> None:
    ran = desk.run(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    if not command:
        for taught in ("postledger send --to", "Exit codes", "POSTLEDGER_DATABASE", "audit verify"):
            assert taught in ran.out
    elif command != ["campaign"]:
        assert "Example:\n  postledger" in ran.out
