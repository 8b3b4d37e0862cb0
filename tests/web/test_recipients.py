"""People in and out: in every form, all of them or nobody, with a word on each that was not taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from postledger.database import Connection
from postledger.http.api import recipients as module
from tests.campaigns import WITHIN, change, draft, enqueue, people
from tests.eventually import eventually
from tests.web.conftest import Api

PERSON = {"email": "ann@x.example", "name": "Ann", "town": "Ulm"}
LINES = b'{"email": "ann@x.example", "name": "Ann", "town": "Ulm"}\n{"email": "bob@x.example"}\n'
NDJSON = {"Content-Type": "application/x-ndjson"}
CSV = {"Content-Type": "text/csv"}


@pytest.fixture
async def campaign(db: Connection) -> int:
    return await draft(db)


async def stored(db: Connection, campaign: int) -> list[tuple[Any, ...]]:
    rows = await db.fetch(
        "SELECT recipient_key, email, name, data FROM recipients WHERE campaign_id = $1 ORDER BY delivery_id", campaign
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (NDJSON, LINES),
        ({"Content-Type": "application/jsonl; charset=utf-8"}, b"\xef\xbb\xbf" + LINES),
        (CSV, b"email,name,town\nann@x.example,Ann,Ulm\nbob@x.example,,\n"),
        (CSV, "sep=;\nEMail;Name;town\nann@x.example;Ann;Ulm\nbob@x.example;;\n".encode("utf-16")),
        ({"Content-Type": "application/json"}, json.dumps([PERSON, {"email": "bob@x.example", "town": ""}]).encode()),
        ({"Content-Type": "application/json"}, json.dumps({"items": [PERSON, {"email": "BOB@x.example"}]}).encode()),
    ],
)
async def test_each_form_says_the_same(
    api: Api, db: Connection, campaign: int, headers: dict[str, str], body: bytes
) -> None:
    found = await api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=body, headers=headers)
    assert found.status == 200, found.content
    assert found.json == {
        "rows": 2,
        "accepted": 2,
        "duplicate_key": 0,
        "duplicate_address": 0,
        "invalid": 0,
        "suppressed": 0,
        "lines": [],
        "lines_omitted": 0,
    }
    ann, bob = await stored(db, campaign)
    assert ann == ("ann@x.example", "ann@x.example", "Ann", {"town": "Ulm"})
    assert bob[:3] == ("bob@x.example", "bob@x.example", None)


async def test_each_line_that_was_not_taken_says_why_and_its_neighbours_are_in(
    api: Api, db: Connection, campaign: int
) -> None:
    await db.execute("SELECT suppress('gone@x.example', 'operator', 'test')")
    body = b"\n".join(
        (
            b'{"email": "ann@x.example"}',
            b"nonsense",
            b'{"email": "ANN@x.example"}',
            b'{"email": "gone@x.example"}',
            b'{"email": "b@x.example", "key": "7"}',
            b'{"email": "c@x.example", "key": "7"}',
        )
    )
    found = (await api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=body, headers=NDJSON)).json
    assert (found["rows"], found["accepted"], found["suppressed"], found["invalid"]) == (6, 2, 1, 1)
    assert [(line["line"], line["outcome"]) for line in found["lines"]] == [
        (2, "invalid"),
        (3, "duplicate_address"),
        (4, "suppressed"),
        (6, "duplicate_key"),
    ]
    assert all(line["reason"] for line in found["lines"])
    assert [row[1] for row in await stored(db, campaign)] == ["ann@x.example", "gone@x.example", "b@x.example"]


async def test_a_report_is_bounded(api: Api, campaign: int) -> None:
    body = b'{"email": "ann@x.example"}\n' + b"x\n" * 10_500
    found = (await api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=body, headers=NDJSON)).json
    assert (found["invalid"], len(found["lines"]), found["lines_omitted"]) == (10_500, 10_000, 500)


@pytest.mark.parametrize(
    ("headers", "body", "problem"),
    [
        (NDJSON, b"", (422, "invalid")),
        (NDJSON, b"x\ny\n", (422, "invalid")),
        (CSV, b"", (422, "invalid")),
        (CSV, b"name\nann\n", (422, "invalid")),
        (CSV, b"email\n", (422, "invalid")),
        ({"Content-Type": "application/json"}, b"{}", (422, "invalid")),
        ({"Content-Type": "application/json"}, b"[]", (422, "invalid")),
        ({"Content-Type": "application/xml"}, LINES, (415, "unsupported-media-type")),
        ({}, LINES, (415, "unsupported-media-type")),
    ],
)
async def test_what_is_of_no_use_changes_nothing(
    api: Api, db: Connection, campaign: int, headers: dict[str, str], body: bytes, problem: tuple[int, str]
) -> None:
    found = await api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=body, headers=headers)
    assert found.problem == problem
    assert found.json["detail"]
    await nothing_left(db, campaign)


async def nothing_left(db: Connection, campaign: int) -> None:
    assert not await stored(db, campaign)
    assert await db.fetchval("SELECT count(*) FROM import_rows") == 0
    assert await db.fetchval("SELECT count(*) FROM imports WHERE state <> 'done'") == 0


async def test_a_campaign_that_is_over_takes_nobody(api: Api, db: Connection, campaign: int) -> None:
    await change(db, campaign, "Cancelled")
    found = await api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=LINES, headers=NDJSON)
    assert found.problem == (409, "conflict")
    found = await api.call("POST", "/v1/campaigns/99/recipients", data=LINES, headers=NDJSON)
    assert found.problem == (404, "not-found")
    await nothing_left(db, campaign)


async def test_an_upload_that_breaks_off_leaves_nothing(api: Api, db: Connection, campaign: int) -> None:
    host, port = api.url.removeprefix("http://").split(":")
    for framing in (b"Content-Length: 100000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n4000\r\n"):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/campaigns/{campaign}/recipients HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n"
        writer.write(head.encode() + b"Content-Type: application/x-ndjson\r\n" + framing + LINES)
        await writer.drain()
        await eventually(lambda: expect(api.app[module.UPLOADING].coming == 1), within=WITHIN)
        writer.close()
        await eventually(lambda: expect(api.app[module.UPLOADING].coming == 0), within=WITHIN)
        await reader.read()
    await nothing_left(db, campaign)


def expect(condition: bool) -> None:
    assert condition


async def test_a_slow_upload_holds_no_connection(api: Api, db: Connection, campaign: int) -> None:
    go = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield LINES
        await go.wait()
        yield b'{"email": "cid@x.example"}\n'

    slow = asyncio.ensure_future(api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=body(), headers=NDJSON))
    await eventually(lambda: expect(api.app[module.UPLOADING].coming == 1), within=WITHIN)
    assert await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postledger import'") == 0
    other = await api.call("POST", f"/v1/campaigns/{campaign}/recipients", data=LINES, headers=NDJSON)
    assert other.json["accepted"] == 2
    go.set()
    assert (await slow).json["duplicate_address"] == 2


async def test_the_same_request_again_is_answered_the_same_and_adds_nobody(
    api: Api, db: Connection, campaign: int
) -> None:
    headers = {**NDJSON, "Idempotency-Key": "upload-1"}
    path = f"/v1/campaigns/{campaign}/recipients"
    first = await api.call("POST", path, data=LINES, headers=headers)
    again = await api.call("POST", path, data=LINES, headers=headers)
    assert again.json == first.json
    assert again.json["accepted"] == 2
    assert again.headers["Idempotent-Replayed"] == "true"
    other = await api.call("POST", path, data=LINES + LINES, headers=headers)
    assert other.problem == (422, "key-reused")
    assert len(await stored(db, campaign)) == 2


async def test_twins_at_once_add_everybody_once(api: Api, db: Connection, campaign: int) -> None:
    body = b"".join(b'{"email": "p%d@x.example"}\n' % n for n in range(500))
    path = f"/v1/campaigns/{campaign}/recipients"
    found = await asyncio.gather(*(api.call("POST", path, data=body, headers=NDJSON) for _ in range(4)))
    assert sorted(one.json["accepted"] for one in found) == [0, 0, 0, 500]
    assert len(await stored(db, campaign)) == 500


async def test_too_many_bytes_are_refused(api: Api, db: Connection, campaign: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LIST_LIMIT", 10)
    headers = {"Content-Type": "application/json"}
    found = await api.post(f"/v1/campaigns/{campaign}/recipients", [PERSON], headers=headers)
    assert found.problem == (413, "too-large")
    assert "ndjson" in found.json["remedy"]
    await nothing_left(db, campaign)


async def test_pages_show_everybody_once(api: Api, db: Connection, campaign: int) -> None:
    await enqueue(db, campaign, people(25))
    keys: list[str] = []
    after = ""
    while after is not None:
        page = (await api.get(f"/v1/campaigns/{campaign}/recipients?limit=10{after and '&after=' + after}")).json
        keys += [item["key"] for item in page["items"]]
        after = page["next"]
    assert keys == [key for key, _ in people(25)]
    first = (await api.get(f"/v1/campaigns/{campaign}/recipients?limit=1")).json["items"][0]
    assert first.items() >= {"key": "k1", "email": "p1@example.org", "status": "pending", "feedback": None}.items()


async def test_a_status_is_asked_for_by_name(api: Api, db: Connection, campaign: int) -> None:
    await db.execute("SELECT suppress('p2@example.org', 'operator', 'test')")
    await enqueue(db, campaign, people(3))
    path = f"/v1/campaigns/{campaign}/recipients"
    assert [item["key"] for item in (await api.get(f"{path}?status=skipped")).json["items"]] == ["k2"]
    assert (await api.get(f"{path}?status=lost")).problem == (422, "invalid")
    assert (await api.get(f"{path}?after=x")).problem == (422, "invalid")
    assert (await api.get("/v1/campaigns/99/recipients")).problem == (404, "not-found")


async def test_all_of_them_come_as_lines(api: Api, db: Connection, campaign: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "PAGE", 7)
    await enqueue(db, campaign, people(25))
    headers = {"Accept": "application/x-ndjson"}
    found = await api.get(f"/v1/campaigns/{campaign}/recipients", headers=headers)
    assert found.headers["Content-Type"] == "application/x-ndjson"
    assert [json.loads(line)["key"] for line in found.content.splitlines()] == [key for key, _ in people(25)]
    none = await api.get(f"/v1/campaigns/{campaign}/recipients?status=sent", headers=headers)
    assert (none.status, none.content) == (200, b"")
    missing = await api.get("/v1/campaigns/99/recipients", headers=headers)
    assert missing.problem == (404, "not-found")
