"""Campaigns by the API: what goes in comes out, what is wrong is named, and the log says who did what."""

from __future__ import annotations

import asyncio
import io
import re
import sys
from asyncio.subprocess import PIPE
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from postledger.database import Connection
from postledger.projections.verify import verify
from tests.eventually import eventually
from tests.web.campaigns import LETTER, act, asked, new_campaign, null_sender, people
from tests.web.conftest import Api

STATUSES = ["pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown"]


async def test_a_campaign_is_written_down_and_read(api: Api):
    sender = await null_sender(api)
    whole = asked(
        text="Hello",
        reply_to="answers@shop.example",
        kind="bulk",
        priority=3,
        unknown="hold",
        attempts=7,
        give_up="90m",
        expires="24h",
        missed=None,
        max_errors="20%",
        track=["opens"],
    )
    made = await api.post("/v1/campaigns", whole)
    assert made.status == 201
    document = made.json
    assert made.headers["Location"] == f"/v1/campaigns/{document['id']}"
    assert made.headers["ETag"] == '"1"'
    assert made.headers["Content-Type"].startswith("application/json")
    for name in ("name", "subject", "from", "reply_to", "kind", "priority", "unknown", "attempts", "expires", "missed"):
        assert document[name] == whole[name], name
    assert (document["max_errors"], document["track"], document["give_up"]) == ("20%", ["opens"], "90m")
    assert document["status"] == "draft"
    assert document["pause"] is None
    assert document["sender"]["name"] == sender
    assert isinstance(document["id"], str)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", document["created_at"])
    assert list(document["counts"]) == STATUSES
    assert (document["audience"], sum(document["counts"].values())) == (0, 0)

    read = await api.get(f"/v1/campaigns/{document['id']}")
    assert (read.status, read.json, read.headers["ETag"]) == (200, document, '"1"')


async def test_defaults_are_those_of_the_command_line(api: Api, tmp_path: Path):
    """The same campaign by both ways differs in nothing but what it is called."""
    (tmp_path / "letter.html").write_text(LETTER)
    by_api = await new_campaign(api, sender="nowhere")
    flags = ["--subject", "Hello", "--from", "Shop <news@shop.example>", "--html", f"{tmp_path}/letter.html"]
    where = ["--database", api.database.dsn, "--url", "https://mail.shop.example"]
    command = ["campaign", "create", "--name", "summer", "--via", "null://", *flags, *where, "--json"]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "postledger", *command, stdout=PIPE)
    out, _ = await process.communicate()
    by_command = orjson.loads(out)
    differ = {name for name in by_api if by_api[name] != by_command[name]}
    assert differ == {"id", "name", "created_at", "sender"}
    assert list(by_api) == list(by_command)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name"),
    ({"name": "a\nb"}, "name"),
    ({"name": 5}, "name"),
    ({"name": "x" * 201}, "name"),
    ({"subject": "a\r\nBcc: x@y.example"}, "subject"),
    ({"subject": None}, "subject"),
    ({"subject": "{{ broken"}, "subject"),
    ({"html": None}, "html"),
    ({"html": "{% if %}"}, "html"),
    ({"from": "nobody"}, "from"),
    ({"from": None}, "from"),
    ({"reply_to": "x"}, "reply_to"),
    ({"sender": "another"}, "sender"),
    ({"kind": "huge"}, "kind"),
    ({"priority": "high"}, "priority"),
    ({"priority": 2_000_000}, "priority"),
    ({"priority": True}, "priority"),
    ({"unknown": "forget"}, "unknown"),
    ({"attempts": 0}, "attempts"),
    ({"attempts": 1.5}, "attempts"),
    ({"give_up": "soon"}, "give_up"),
    ({"expires": "0s"}, "expires"),
    ({"max_errors": "0%"}, "max_errors"),
    ({"at": "tomorrow"}, "at"),
    ({"at": "2026-12-01 09:00"}, "at"),
    ({"at": "2001-01-01T00:00:00Z"}, "at"),
    ({"list": "nobody"}, "list"),
    ({"template": "0" * 64}, "template"),
    ({"track": ["clicks", "clicks"]}, "track"),
    ({"track": ["smiles"]}, "track[0]"),
    ({"colour": "red"}, "colour"),
]


async def test_what_is_wrong_is_named_with_a_remedy(api: Api):
    await null_sender(api)
    for fields, field in WRONG:
        answer = await api.post("/v1/campaigns", asked(**fields))
        assert answer.problem == (422, "invalid"), fields
        assert answer.json["field"] == field, (fields, answer.content)
        assert answer.json["remedy"], fields
    assert (await api.get("/v1/campaigns")).json["items"] == []


async def test_what_is_no_json_is_refused(api: Api):
    for data, content_type, problem in (
        (b"{", "application/json", (400, "malformed")),
        (b"[]", "application/json", (422, "invalid")),
        (b'{"name": "a", "name": "\\ud800"}', "application/json", (400, "malformed")),
        (b"name=spring", "application/x-www-form-urlencoded", (415, "unsupported-media-type")),
        (b"x" * (5 << 20), "application/json", (413, "too-large")),
    ):
        answer = await api.call("POST", "/v1/campaigns", data=io.BytesIO(data), headers={"Content-Type": content_type})
        assert answer.problem == problem, (data[:30], answer.content)


async def test_all_that_is_wrong_with_a_letter_comes_at_once(api: Api):
    await null_sender(api)
    answer = await api.post("/v1/campaigns", asked(subject="{{ a", html="{{ b"))
    assert answer.problem == (422, "invalid")
    assert {one["field"] for one in answer.json["errors"]} == {"subject", "html"}


async def test_a_name_is_taken_once(api: Api):
    first = await new_campaign(api)
    second = await api.post("/v1/campaigns", asked(subject="another"))
    assert second.problem == (409, "conflict")
    assert second.json["field"] == "name"
    assert first["id"] in second.json["detail"]


async def test_lists_are_walked_by_opaque_cursors(api: Api):
    ids = [(await new_campaign(api, name=f"c{n}"))["id"] for n in range(5)]
    seen: list[str] = []
    path = "/v1/campaigns?limit=2"
    while True:
        page = (await api.get(path)).json
        seen += [one["id"] for one in page["items"]]
        if page["next"] is None:
            break
        path = f"/v1/campaigns?limit=2&after={page['next']}"
    assert seen == ids[::-1]
    for query in ("limit=0", "limit=1000000", "limit=x", "after=%27", "limit=1&limit=2", "page=2"):
        assert (await api.get(f"/v1/campaigns?{query}")).problem == (422, "invalid"), query


async def test_a_draft_is_changed_and_keeps_the_rest(api: Api, db: Connection):
    made = await new_campaign(api, expires="24h", priority=4, text="plain")
    path = f"/v1/campaigns/{made['id']}"
    changed = await api.patch(path, {"subject": "Bye", "expires": None}, headers={"If-Match": '"1"'})
    assert (changed.status, changed.headers["ETag"]) == (200, '"2"')
    differ = {name for name in made if made[name] != changed.json[name]}
    assert differ == {"subject", "expires", "version", "template"}
    assert (changed.json["subject"], changed.json["expires"]) == ("Bye", None)
    same = await api.patch(path, {"subject": "Bye"}, headers={"If-Match": '"2"'})
    assert same.json["version"] == 2  # nothing has changed, so nothing has happened
    wrong = await api.patch(path, {"html": "{% if %}"}, headers={"If-Match": '"2"'})
    assert (wrong.problem, wrong.json["field"]) == ((422, "invalid"), "html")
    assert (await api.patch(path, {"kind": "standing"}, headers={"If-Match": "2"})).json["field"] == "kind"
    body = await db.fetchval("SELECT body FROM events WHERE campaign_id = $1 AND version = 2", int(made["id"]))
    assert sorted(body["fields"]) == ["expires", "template"]


async def test_only_a_draft_is_changed(api: Api):
    made = await new_campaign(api, at=_later())
    assert made["status"] == "scheduled"
    path = f"/v1/campaigns/{made['id']}"
    answer = await api.patch(path, {"subject": "Bye"}, headers={"If-Match": "*"})
    assert answer.problem == (409, "conflict")
    back = await act(api, made, "schedule", {"at": None})
    assert (back.json["status"], back.json["scheduled_at"]) == ("draft", None)
    assert (await api.patch(path, {"subject": "Bye"}, headers={"If-Match": "*"})).status == 200


async def test_from_is_the_senders_own_where_none_is_said(api: Api):
    await api.post("/v1/senders", {"name": "house", "url": "null://?render=1", "from": "House <house@shop.example>"})
    fields = asked(sender="house")
    del fields["from"]
    made = await api.post("/v1/campaigns", fields)
    assert made.status == 201, made.content
    assert made.json["from"] == "House <house@shop.example>"


async def test_a_letter_that_is_kept_is_used_by_its_hash(api: Api):
    made = await new_campaign(api)
    fields = asked(name="again", template=made["template"])
    del fields["subject"], fields["html"]
    again = await api.post("/v1/campaigns", fields)
    assert (again.status, again.json["template"], again.json["subject"]) == (201, made["template"], "Hello")


async def test_from_draft_to_the_end(api: Api, db: Connection):
    made = await new_campaign(api)
    empty = await act(api, made, "start")
    assert empty.problem == (422, "invalid")
    await people(api, made, 3)
    wrong = await act(api, made, "start", {"expected_audience": 4})
    assert wrong.problem == (409, "conflict")
    at = _later()
    scheduled = await act(api, made, "schedule", {"at": at, "missed": "1h", "expected_audience": 3})
    assert (scheduled.json["status"], scheduled.json["missed"]) == ("scheduled", "1h")
    assert scheduled.json["scheduled_at"] == at
    for step, body, status in (
        ("start", {}, "sending"),
        ("start", None, "sending"),
        ("pause", {"until": at}, "paused"),
        ("pause", None, "paused"),
        ("resume", None, "sending"),
        ("resume", None, "sending"),
        ("cancel", None, "cancelled"),
        ("cancel", None, "cancelled"),
    ):
        answer = await act(api, made, step, body)
        assert (answer.status, answer.json.get("status")) == (200, status), (step, answer.content)
        assert answer.headers["ETag"] == f'"{answer.json["version"]}"'
        if step == "pause":
            resume_at = at if body else None
            assert answer.json["pause"] == {"reason": "operator", "resume_at": resume_at}
    for step in ("start", "pause", "resume"):
        assert (await act(api, made, step)).problem == (409, "conflict")

    async def swept() -> None:
        counts = (await api.get(f"/v1/campaigns/{made['id']}")).json["counts"]
        assert counts["cancelled"] == 3

    await eventually(swept, within=20)  # there is no worker
    assert (await verify(db, None)).equal

    async def sealed() -> None:
        assert (
            await db.fetchval(
                "SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT FROM blocks b WHERE b.positions @> e.position)"
            )
        ) == 0

    await eventually(sealed, within=20)


async def test_retry_takes_failed_ones_only(api: Api, db: Connection):
    made = await new_campaign(api)
    await people(api, made, 2)
    assert (await act(api, made, "retry")).problem == (409, "conflict")  # it has not begun
    assert (await act(api, made, "start")).status == 200
    waiting = await act(api, made, "retry")
    assert (waiting.status, waiting.json["counts"]["pending"]) == (200, 2)
    assert (await act(api, made, "retry", {"deliveries": ["x"]})).json["field"] == "deliveries[0]"
    assert (await act(api, made, "cancel")).status == 200
    assert (await act(api, made, "retry")).problem == (409, "conflict")


async def test_an_id_that_is_none_is_not_there(api: Api):
    for word in ("0", "999999", "x", "%00", "1e3", "-1", "9" * 30):
        assert (await api.get(f"/v1/campaigns/{word}")).problem == (404, "not-found"), word
        assert (await api.post(f"/v1/campaigns/{word}/start")).problem == (404, "not-found"), word


def _later() -> str:
    at = datetime.now(UTC) + timedelta(days=2)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
