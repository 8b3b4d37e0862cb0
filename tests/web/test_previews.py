"""A campaign before it begins: its checklist, the exact mail of one recipient, and a test send that leaves no trace."""

import hashlib
import re
from email import message_from_bytes
from email.policy import SMTP
from pathlib import Path
from typing import Any

from postledger.database import Connection
from postledger.projections.verify import verify
from tests.workers.mailing import Mailing

from .conftest import Api

LETTER = (
    '<p>Dear {{ name }} from {{ town }}</p><script>alert(1)</script><a href="https://shop.example/">shop</a>'
    '<a href="{{ unsubscribe_url }}">no more</a>'
)
PEOPLE = [
    {"email": "ann@x.example", "name": "Ann", "town": "Ulm"},
    {"email": "bob@x.example", "name": "Bob", "town": "Kiel"},
]


async def draft(
    api: Api, url: str = "null://?render=1", people: list[dict[str, str]] | None = None, **more: Any
) -> str:
    sender = await api.post("/v1/senders", {"name": "way", "url": url, "rate": "10/s"})
    assert sender.status == 201, sender.content
    made = await api.post(
        "/v1/campaigns",
        {
            **{"name": "spring", "subject": "Hello {{ name }}", "html": LETTER, "from": "Shop <news@shop.example>"},
            **{"sender": "way", **more},
        },
    )
    assert made.status == 201, made.content
    campaign = str(made.json["id"])
    if people:
        added = await api.post(f"/v1/campaigns/{campaign}/recipients", {"items": people})
        assert added.status in (200, 201, 202), added.content
    return campaign


async def trace(db: Connection) -> dict[str, list[object]]:
    """All that a look must not change."""
    return {
        table: await db.fetch(f"SELECT {table} FROM {table} ORDER BY 1")
        for table in ("events", "recipients", "recipient_queue", "campaigns")
    }


async def test_a_preview_is_what_the_relay_would_get(api: Api, db: Connection, tmp_path: Path) -> None:
    campaign = await draft(api, f"file://{tmp_path}", PEOPLE)
    before = await trace(db)
    first = await api.get(f"/v1/campaigns/{campaign}/preview")
    assert first.status == 200, first.content
    shown = first.json
    mime = shown["mime"].encode("ascii")
    assert (shown["size"], shown["sha256"]) == (len(mime), hashlib.sha256(mime).hexdigest())
    mail = message_from_bytes(mime, policy=SMTP)
    assert (mail["To"], mail["Subject"], shown["subject"]) == ("Ann <ann@x.example>", "Hello Ann", "Hello Ann")
    assert mail["Message-ID"] == shown["message_id"]
    assert mail["List-Unsubscribe"].startswith("<https://mail.shop.example/u/")
    assert "Dear Ann from Ulm" in shown["html"]
    assert "Dear Ann from Ulm" in shown["text"]
    second = await db.fetchval("SELECT max(delivery_id) FROM recipients")
    other = await api.get(f"/v1/campaigns/{campaign}/preview/mime?delivery_id={second}")
    assert other.headers["Content-Type"] == "message/rfc822"
    assert message_from_bytes(other.content, policy=SMTP)["To"] == "Bob <bob@x.example>"
    assert (await api.get(f"/v1/campaigns/{campaign}/preview?delivery_id=999999")).problem == (404, "not-found")
    assert await trace(db) == before
    sent = await sent_to(api, db, campaign, tmp_path, "ann@x.example")
    assert undated(sent) == undated(mime)


async def sent_to(api: Api, db: Connection, campaign: str, folder: Path, address: str) -> bytes:
    """The mail that a worker then wrote."""
    assert (await api.post(f"/v1/campaigns/{campaign}/start", {"expected_audience": 2})).status == 200
    mailing = Mailing(api.database, db)
    async with mailing.working(base_url="https://mail.shop.example"):
        await mailing.until(int(campaign), "completed")
    (found,) = (one for one in written(folder) if f"To: Ann <{address}>".encode() in one)
    return found


def written(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.rglob("*.eml")]


def undated(mime: bytes) -> bytes:
    return re.sub(rb"(?m)^Date: .*\r?\n", b"", mime).replace(b"\r\n", b"\n")


async def test_what_is_looked_at_can_do_nothing(api: Api, db: Connection) -> None:
    campaign = await draft(api, people=PEOPLE, track=["opens", "clicks"])
    page = await api.get(f"/v1/campaigns/{campaign}/preview/html")
    assert page.status == 200
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert "sandbox" in policy  # no allow-scripts, no allow-same-origin: whatever the letter holds
    assert "default-src 'none'" in policy
    assert not any(part.startswith("script-src") for part in policy)
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    html = page.content.decode()
    assert "Dear Ann from Ulm" in html
    assert 'href="https://shop.example/"' in html  # not by way of us: looking is no click
    assert "mail.shop.example/o/" not in html
    exact = (await api.get(f"/v1/campaigns/{campaign}/preview")).json["mime"].replace("=\r\n", "")
    (token,) = set(re.findall(r"mail\.shop\.example/u/([A-Za-z0-9_-]{44})", html))
    assert token not in exact  # the page may be passed on: no link in it is the recipient's


async def test_a_person_can_be_made_up(api: Api, db: Connection) -> None:
    campaign = await draft(api)
    assert (await api.get(f"/v1/campaigns/{campaign}/preview")).problem == (409, "conflict")
    person = {"email": "eve@x.example", "name": "Eve", "data": {"town": "Bonn"}}
    before = await trace(db)
    shown = await api.post(f"/v1/campaigns/{campaign}/preview", person)
    assert "Dear Eve from Bonn" in shown.json["html"]
    lacking = await api.post(f"/v1/campaigns/{campaign}/preview", {"email": "eve@x.example"})
    assert lacking.problem == (422, "invalid")
    assert "eve@" not in lacking.json["detail"]
    assert await trace(db) == before


async def test_a_test_send_touches_no_recipient(api: Api, db: Connection, tmp_path: Path) -> None:
    campaign = await draft(api, f"file://{tmp_path}", PEOPLE)
    await api.post("/v1/suppressions", {"email": "gone@x.example"})
    before = await trace(db)
    asked = {"to": ["me@shop.example", "GONE@x.example", "me@shop.example"], "data": {"town": "Bonn"}}
    tried = await api.post(f"/v1/campaigns/{campaign}/test", asked)
    assert tried.status == 200, tried.content
    assert [(one["email"], one["outcome"]) for one in tried.json["items"]] == [
        ("me@shop.example", "accepted"),
        ("gone@x.example", "suppressed"),
    ]
    (sent,) = written(tmp_path)
    mail = message_from_bytes(sent, policy=SMTP)
    assert "me@shop.example" in mail["To"]
    body = mail.get_body(("html",))
    assert body is not None
    assert "Dear Ann from Bonn" in body.get_content()
    ids = [row["delivery_id"] for row in await db.fetch("SELECT delivery_id FROM recipients")]
    assert int(mail["Message-ID"].partition(".")[0].strip("<")) not in ids
    assert await trace(db) == before
    assert (await verify(db, None)).equal


async def test_a_relay_that_is_not_there_is_said_for_each(api: Api) -> None:
    campaign = await draft(api, "smtp://127.0.0.1:1", PEOPLE)
    tried = await api.post(f"/v1/campaigns/{campaign}/test", {"to": ["me@shop.example", "you@shop.example"]})
    assert [(one["outcome"], one["code"]) for one in tried.json["items"]] == [("not_begun", None)] * 2
    assert all(one["reply"] for one in tried.json["items"])
    for to in ([], ["me"], [f"p{n}@x.example" for n in range(11)]):
        refused = await api.post(f"/v1/campaigns/{campaign}/test", {"to": to})
        assert (refused.problem, refused.json["field"]) == ((422, "invalid"), "to")


async def test_the_checklist_says_what_stands_against_a_start(api: Api, db: Connection) -> None:
    campaign = await draft(api, "smtp://user:env:NO_SUCH_VARIABLE_HERE@relay.example")
    path = f"/v1/campaigns/{campaign}/checklist"
    empty = (await api.get(path)).json
    assert (empty["ready"], empty["audience"], empty["variables"]) == (False, 0, ["name", "town"])
    assert {one["field"] for one in empty["items"] if one["severity"] == "error"} == {"recipients", "sender"}
    await api.post("/v1/suppressions", {"email": "bob@x.example"})
    people = [{"email": one["email"], "name": one["name"]} for one in PEOPLE]
    await api.post(f"/v1/campaigns/{campaign}/recipients", {"items": people})
    before = await trace(db)
    found = (await api.get(f"{path}?expected_audience=3")).json
    assert (found["audience"], found["pending"], found["skipped"]) == (2, 1, 1)
    errors = {one["field"]: one for one in found["items"] if one["severity"] == "error"}
    assert set(errors) == {"data", "sender", "expected_audience"}
    assert "town" in errors["data"]["reason"]
    assert all(one["remedy"] for one in found["items"])
    assert await trace(db) == before


async def test_a_ready_one_has_no_error_and_starts_as_expected(api: Api) -> None:
    campaign = await draft(api, people=PEOPLE)
    found = (await api.get(f"/v1/campaigns/{campaign}/checklist?expected_audience=2")).json
    assert (found["ready"], found["takes"], found["items"]) == (True, "1s", [])
    refused = await api.post(f"/v1/campaigns/{campaign}/start", {"expected_audience": 3})
    assert refused.problem == (409, "conflict")
    assert (await api.get(f"/v1/campaigns/{campaign}")).json["status"] == "draft"
    begun = await api.post(f"/v1/campaigns/{campaign}/start", {"expected_audience": 2})
    assert (begun.status, begun.json["status"]) == (200, "sending")
