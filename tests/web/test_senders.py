"""Senders without their passwords, and letters that never change."""

from typing import Any

from postledger.database import Connection, Database
from postledger.ledger import senders as ledger
from postledger.projections.verify import verify

from .conftest import Api

RELAY = {
    "name": "relay",
    "url": "smtp://user:s3cret@relay.example:587",
    "from": "Shop <news@shop.example>",
    "rate": "100/s",
}


async def test_a_password_goes_in_and_never_comes_out(api: Api, db: Connection) -> None:
    made = await api.post("/v1/senders", RELAY)
    assert made.status == 201, made.content
    sender = int(made.json["id"])
    shown = await api.get(f"/v1/senders/{sender}")
    listed = await api.get("/v1/senders")
    assert listed.json["items"] == [shown.json] == [made.json]
    assert (shown.json["url"], shown.json["has_secret"]) == ("smtp://user@relay.example:587", True)
    assert (shown.json["from"], shown.json["rate"], shown.json["secret"]) == ("Shop <news@shop.example>", "100/s", None)
    for one in (made, shown, listed):
        assert b"s3cret" not in one.content
    assert await ledger.read_url(db, sender) == RELAY["url"]
    bodies = await db.fetch("SELECT body::text AS body FROM events WHERE type = 'SenderChanged'")
    assert bodies
    assert not any("s3cret" in row["body"] for row in bodies)
    assert (await api.post("/v1/senders", RELAY)).problem == (409, "conflict")
    assert (await verify(db, None)).equal


async def test_a_secret_may_stand_apart_or_in_a_variable(api: Api, db: Connection) -> None:
    made = await api.post("/v1/senders", {"name": "a", "url": "smtp://user@relay.example", "secret": "p@ss/word"})
    assert await ledger.read_url(db, int(made.json["id"])) == "smtp://user:p%40ss%2Fword@relay.example"
    made = await api.post(
        "/v1/senders", {"name": "b", "url": "smtp://user@relay.example", "secret": "env:RELAY_PASSWORD"}
    )
    assert (made.json["secret"], made.json["url"]) == ("env:RELAY_PASSWORD", "smtp://user@relay.example")
    made = await api.post("/v1/senders", {"name": "c", "url": "smtp://user:env:RELAY_PASSWORD@relay.example"})
    assert made.json["secret"] == "env:RELAY_PASSWORD"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"url": "smtp://"}, "url"),
    ({"url": "gopher://x"}, "url"),
    ({"url": "smtp://user:s3cret@relay.example:99999"}, "url"),
    ({"url": "smtp://user:s3cret@relay.example?nothing=1"}, "url"),
    ({"secret": "again"}, "secret"),
    ({"url": "smtp://relay.example", "secret": "x"}, "secret"),
    ({"url": "smtp://user:env:POSTLEDGER_DATABASE@relay.example"}, "secret"),
    ({"url": "smtp://user@relay.example", "secret": "env:Postledger_Database"}, "secret"),
    ({"rate": "100"}, "rate"),
    ({"from": "nobody"}, "from"),
    ({"name": ""}, "name"),
]


async def test_what_is_no_sender_is_refused(api: Api, db: Connection) -> None:
    for change, field in REFUSED:
        refused = await api.post("/v1/senders", {**RELAY, **change})
        assert (refused.problem, refused.json["field"]) == ((422, "invalid"), field), refused.content
        assert b"s3cret" not in refused.content
    assert await db.fetchval("SELECT count(*) FROM senders") == 0


async def test_what_may_change_of_a_sender(api: Api, db: Connection) -> None:
    path = f"/v1/senders/{(await api.post('/v1/senders', RELAY)).json['id']}"
    changed = await api.patch(path, {"secret": "new", "rate": None})
    assert (changed.status, changed.json["rate"], changed.json["from"]) == (200, None, RELAY["from"])
    assert await ledger.read_url(db, int(changed.json["id"])) == "smtp://user:new@relay.example:587"
    changed = await api.patch(path, {"url": "smtp://user:newer@relay.example:587", "from": None})
    assert (changed.json["from"], changed.json["has_secret"]) == (None, True)
    assert await ledger.read_url(db, int(changed.json["id"])) == "smtp://user:newer@relay.example:587"
    other = await api.patch(path, {"url": "smtp://user:newer@elsewhere.example:587"})
    assert other.problem == (422, "invalid")
    assert (await api.patch(path, {"name": "another"})).problem == (422, "invalid")
    assert (await api.patch("/v1/senders/999", {"rate": "1/s"})).problem == (404, "not-found")
    assert (await verify(db, None)).equal


async def test_an_auditor_reads_no_secret(api: Api, database: str) -> None:
    await api.post("/v1/senders", RELAY)
    async with Database(database).connection(role="postledger_audit") as conn:
        assert await conn.fetchval("SELECT mail_from FROM senders") == RELAY["from"]


async def test_a_letter_is_known_by_what_it_says(api: Api) -> None:
    letter = {"subject": "Hello {{ name }}", "html": "<p>Dear {{ name }}</p>"}
    first, again = await api.post("/v1/templates", letter), await api.post("/v1/templates", letter)
    assert (first.status, again.json) == (201, first.json)
    assert first.headers["Location"] == f"/v1/templates/{first.json['hash']}"
    assert (await api.get(f"/v1/templates/{first.json['hash']}")).json == first.json
    other = await api.post("/v1/templates", {**letter, "text": "Dear {{ name }}"})
    assert other.json["hash"] != first.json["hash"]
    assert (await api.call("PUT", f"/v1/templates/{first.json['hash']}", json=letter)).problem == (
        405,
        "method-not-allowed",
    )
    assert (await api.get(f"/v1/templates/{'0' * 64}")).problem == (404, "not-found")


UNREADABLE: list[tuple[dict[str, str], str]] = [
    ({"subject": "x"}, "html"),
    ({"subject": "x", "html": "{{ name "}, "html"),
    ({"subject": "{% if %}", "html": "x"}, "subject"),
    ({"subject": "a\nb", "html": "x"}, "subject"),
    ({"subject": "x", "text": "{{ env('HOME') }}"}, "text"),
]


async def test_a_letter_that_cannot_be_rendered_is_not_kept(api: Api, db: Connection) -> None:
    for letter, field in UNREADABLE:
        refused = await api.post("/v1/templates", letter)
        assert (refused.problem, refused.json["field"]) == ((422, "invalid"), field), letter
    assert await db.fetchval("SELECT count(*) FROM templates") == 0
