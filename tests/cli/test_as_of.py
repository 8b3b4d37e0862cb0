"""`audit as-of`, and what commands leave sealed."""

import json
from datetime import UTC, datetime, timedelta

from tests.cli.conftest import Desk

COUNTS = {"pending": 0, "sending": 0, "sent": 0, "failed": 0, "skipped": 0, "cancelled": 0, "unknown": 0}


def blocks(desk: Desk) -> dict[int, datetime]:
    """Numbers and times; there is nothing that is in none."""
    pairs = desk.sql("SELECT json_object_agg(block_no, sealed_at) FROM postledger.blocks")
    assert desk.sql("SELECT postledger.unsealed()") is False
    return {int(number): datetime.fromisoformat(at) for number, at in json.loads(pairs or "{}").items()}


def written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def test_what_was_true_at_a_time(desk: Desk) -> None:
    people = desk.shell.people(3)
    assert desk.send(people, "--no-wait", name="spring").code == 0
    [(first, sealed_at)] = blocks(desk).items()
    assert desk.run("campaign", "cancel", "spring").code == 0
    last = max(blocks(desk))
    before = sealed_at - timedelta(microseconds=1)

    def as_of(at: str) -> dict[str, object]:
        ran = desk.run("audit", "as-of", "spring", "--at", at, "--json")
        assert ran.code == 0, ran.err
        return ran.document

    assert as_of(before.isoformat()) == {
        "campaign": {"id": "1", "name": "spring"},
        "at": written(before),
        "block": None,
        "sealed_at": None,
        "counts": COUNTS,
        "final": True,
        "unsealed": 0,
    }
    then = as_of(sealed_at.isoformat())
    assert (then["block"], then["at"], then["sealed_at"]) == (str(first), written(sealed_at), written(sealed_at))
    assert then["counts"] == COUNTS | {"pending": 3}
    now = as_of("2099-01-01 09:00 Europe/Berlin")
    assert (now["at"], now["block"]) == ("2099-01-01T08:00:00.000000Z", str(last))
    assert now["counts"] == COUNTS | {"cancelled": 3}
    assert (then["final"], now["final"]) == (True, False)

    told = desk.run("audit", "as-of", "spring", "--at", sealed_at.isoformat()).out
    assert f"block {first}" in told
    assert ["pending", "3"] in [line.split() for line in told.splitlines()]
    assert "nothing had been sealed by" in desk.run("audit", "as-of", "spring", "--at", before.isoformat()).out

    desk.sql("INSERT INTO postledger.events (campaign_id, delivery_id, type, body) VALUES (1, 1, 'Opened', '{}')")
    told = desk.run("audit", "as-of", "spring", "--at", "2099-01-01T00:00:00Z").err
    assert "still to come" in told
    assert "1 events of this campaign are in no block yet" in told


def test_a_time_that_does_not_say_which_is_refused(offline: Desk) -> None:
    for at in ("yesterday", "2026-12-01T09:00:00", "2026-12-01 09:00 Europe/Atlantis"):
        ran = offline.run("audit", "as-of", "spring", "--at", at)
        assert ran.code == 64
        assert "--at" in ran.complaint
    assert offline.run("audit", "as-of", "spring").code == 64


def test_what_a_command_appends_is_sealed_when_it_leaves(desk: Desk) -> None:
    before: set[int] = set()
    for command in (
        [*desk.shell.letter_to(desk.shell.people(2), name="spring"), "--no-wait"],
        ["campaign", "pause", "spring"],
        ["campaign", "resume", "spring"],
        ["suppress", "p1@example.org"],
        desk.shell.letter_to(desk.shell.people(3), name="spring"),
    ):
        ran = desk.run(*command)
        assert ran.code == 0, ran.err
        assert set(blocks(desk)) > before, command
        before = set(blocks(desk))
    assert desk.run("campaign", "cancel", "spring").code != 0
    assert desk.run("campaign", "show", "spring").code == 0
    assert set(blocks(desk)) == before


def test_history_and_replay_name_the_blocks(desk: Desk) -> None:
    assert desk.send(desk.shell.people(3), name="spring").code == 0
    numbers = {str(number) for number in blocks(desk)}
    history = desk.run("audit", "history", "spring", "k1", "--json").document["items"]
    assert history
    assert {event["block"] for event in history} <= numbers
    replay = [json.loads(line)["event"] for line in desk.run("audit", "replay", "spring").out.splitlines()]
    order = [(int(event["block"]), int(event["position"])) for event in replay]
    assert order == sorted(order)
    verified = desk.run("audit", "verify", "--json").document
    assert (verified["equal"], verified["unsealed"]) == (True, 0)
    desk.sql("SELECT postledger.change_campaign(1, 'Reopened', '{\"by\": \"test\"}')")
    told = desk.run("audit", "verify")
    assert (told.code, "1 events are in no block yet" in told.out) == (0, True)
