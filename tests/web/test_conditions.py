"""If-Match, and who wins among commands that race."""

from __future__ import annotations

import asyncio
from collections import Counter

from postledger.database import Connection
from postledger.projections.verify import verify
from tests.web.campaigns import act, new_campaign, people
from tests.web.conftest import Api


async def test_of_racing_commands_that_saw_one_version_one_wins(api: Api, db: Connection):
    campaign = await new_campaign(api)
    await people(api, campaign, 3)
    assert (await act(api, campaign, "start")).status == 200
    events = "SELECT count(*) FROM events WHERE campaign_id = $1 AND delivery_id = 0"
    for racing in (["pause"] * 7, ["resume"] * 7, ["pause"] * 4 + ["cancel"] * 4):
        seen = (await api.get(f"/v1/campaigns/{campaign['id']}")).headers["ETag"]
        before = await db.fetchval(events, int(campaign["id"]))
        answers = await asyncio.gather(*(act(api, campaign, one, headers={"If-Match": seen}) for one in racing))
        assert Counter(answer.status for answer in answers) == {200: 1, 412: len(racing) - 1}
        for answer in answers:
            if answer.status == 412:
                assert answer.problem == (412, "precondition-failed")
        assert await db.fetchval(events, int(campaign["id"])) == before + 1
    assert (await verify(db, None)).equal


async def test_different_commands_race_and_the_log_is_one_story(api: Api, db: Connection):
    campaign = await new_campaign(api)
    await people(api, campaign, 2)
    for _ in range(4):
        shown = (await api.get(f"/v1/campaigns/{campaign['id']}")).json
        seen = f'"{shown["version"]}"'
        answers = await asyncio.gather(
            *(
                act(api, campaign, action, headers={"If-Match": seen})
                for action in ("start", "pause", "resume", "start", "pause", "resume")
            )
        )
        changed = [
            one.json["version"] for one in answers if one.status == 200 and one.json["version"] > shown["version"]
        ]
        assert len(changed) <= 1, [one.content for one in answers]
        assert all(one.status in (200, 409, 412) for one in answers)
    rows = await db.fetch(
        "SELECT version FROM events WHERE campaign_id = $1 AND delivery_id = 0 ORDER BY version", int(campaign["id"])
    )
    assert [row["version"] for row in rows] == list(range(1, len(rows) + 1))
    assert (await verify(db, None)).equal


async def test_without_if_match_a_command_that_is_done_already_is_no_error(api: Api, db: Connection):
    campaign = await new_campaign(api)
    await people(api, campaign, 1)
    answers = await asyncio.gather(*(act(api, campaign, "start") for _ in range(8)))
    assert {answer.status for answer in answers} == {200}
    started = "SELECT count(*) FROM events WHERE campaign_id = $1 AND type = 'Started'"
    assert await db.fetchval(started, int(campaign["id"])) == 1


async def test_a_change_says_what_it_has_seen(api: Api):
    campaign = await new_campaign(api)
    path = f"/v1/campaigns/{campaign['id']}"
    assert (await api.patch(path, {"subject": "x"})).problem == (428, "precondition-required")
    for written, status in (
        ('"7"', 412),
        ('W/"1"', 400),
        ("version one", 400),
        ('"1", "9"', 200),
        ('"1"', 412),
        ("2", 200),
        ("*", 200),
    ):
        subject = f"seen {written.encode().hex()}"
        answer = await api.patch(path, {"subject": subject}, headers={"If-Match": written})
        assert answer.status == status, (written, answer.content)
    stale = await api.patch(path, {"subject": "x"}, headers={"If-Match": '"1"'})
    assert stale.headers["ETag"] == '"4"'
    answers = await asyncio.gather(
        *(api.patch(path, {"subject": f"by {n}"}, headers={"If-Match": '"4"'}) for n in range(5))
    )
    assert Counter(answer.status for answer in answers) == {200: 1, 412: 4}
