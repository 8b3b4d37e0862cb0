"""Kept payloads read anew after a mend: the log is put right by events, and so is what followed from it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from postledger.database import Connection
from postledger.events.types import Retracted
from postledger.http.webhooks import postmark, reading, sendgrid
from postledger.http.webhooks.rereading import Reread, reread_all
from postledger.http.webhooks.vocabulary import COMPLAINED, HARD, SOFT, UNSUBSCRIBED, Meaning
from postledger.projections.verify import verify
from tests.web.webhooks import signing
from tests.web.webhooks.conftest import Mail, log_of, send, suppressed
from tests.web.webhooks.service import Service


def bounce(mail: Mail, **fields: Any) -> signing.Signed:
    event = {"delivery_id": mail.reference, "type": "bounce", "bounce_classification": "Novel", "status": "5.0.0"}
    return signing.sendgrid([signing.sendgrid_event("bounce", mail.address, **{**event, **fields})])


def _timestamp(posted: signing.Signed) -> int:
    return json.loads(posted[0])[0]["timestamp"]


async def outcome(conn: Connection, mail: Mail) -> str:
    query = "SELECT outcome FROM delivery_feedback WHERE campaign_id = $1 AND delivery_id = $2"
    return await conn.fetchval(query, mail.campaign, mail.delivery) or "pending"


async def test_what_was_read_wrongly_is_put_right_once(service: Service, app: Connection, monkeypatch):
    """A class of bounce that SendGrid began to use, taken for a dead mailbox until the table knew it."""
    mail, other, _ = await send(app)
    with monkeypatch.context() as before:
        before.setitem(sendgrid._CLASSIFICATIONS, "novel", HARD)
        told = bounce(mail)
        assert await service.post("sendgrid", *told) == 200
        assert await service.post("sendgrid", *bounce(other)) == 200
    later = int(signing.now().timestamp()) + 5
    invalid = bounce(other, bounce_classification="Invalid Address", timestamp=later)
    assert await service.post("sendgrid", *invalid) == 200
    twin = bounce(mail, bounce_classification="Invalid Address", timestamp=_timestamp(told))
    assert await service.post("sendgrid", *twin) == 200, "the same again, in other words: what came first counts"
    assert await suppressed(app, mail.address) == await suppressed(app, other.address) == "bounced"

    monkeypatch.setitem(sendgrid._CLASSIFICATIONS, "novel", SOFT)
    assert await reread_all(app, provider="sendgrid", faults_only=False) == Reread(4, 0, 2, 0)
    assert await log_of(app, mail) == ["Bounced", "Retracted", "Bounced"]
    kinds = await app.fetch(
        "SELECT body ->> 'kind' FROM events WHERE type = 'Bounced' AND delivery_id = $1 ORDER BY 1", mail.delivery
    )
    assert [row[0] for row in kinds] == ["hard", "soft"]
    assert await suppressed(app, mail.address) is None
    assert await suppressed(app, other.address) == "bounced", "something else says so too"
    contact = await app.fetch(
        "SELECT e.type, e.body FROM events e JOIN contacts c ON c.id = e.delivery_id"
        " WHERE e.campaign_id = 0 AND c.address_hash = address_hash($1) ORDER BY e.version",
        mail.address,
    )
    assert [row["type"] for row in contact] == ["ContactAdded", "Suppressed", "Unsuppressed"]
    assert contact[2]["body"]["by"] == "reprocess"

    assert await reread_all(app, provider=None, faults_only=False) == Reread(4, 0, 0, 0)
    assert (await verify(app, None)).equal


async def test_what_counts_no_more_does_not_count(service: Service, app: Connection, monkeypatch):
    mail = (await send(app))[0]
    with monkeypatch.context() as before:
        before.setitem(sendgrid._MEANINGS, "processed", COMPLAINED)
        event = signing.sendgrid_event("processed", mail.address, delivery_id=mail.reference)
        assert await service.post("sendgrid", *signing.sendgrid([event])) == 200
        before.setitem(sendgrid._CLASSIFICATIONS, "novel", HARD)
        assert await service.post("sendgrid", *bounce(mail)) == 200
    assert await outcome(app, mail) == "bounced"
    assert await app.fetchval("SELECT feedback FROM deliveries WHERE delivery_id = $1", mail.delivery) == "complained"

    monkeypatch.setitem(sendgrid._CLASSIFICATIONS, "novel", Meaning(sendgrid.Kind.DEFERRED))
    assert (await reread_all(app, provider=None, faults_only=False)).changed == 2
    assert await log_of(app, mail) == ["Complained", "Bounced", "Retracted", "Retracted", "Delayed"]
    assert await outcome(app, mail) == "deferred"
    assert await app.fetchval("SELECT feedback FROM deliveries WHERE delivery_id = $1", mail.delivery) is None
    assert await suppressed(app, mail.address) is None


async def test_a_list_that_was_left_by_mistake_is_joined_again(service: Service, app: Connection, monkeypatch):
    mail = (await send(app))[0]
    mine, never = [
        await app.fetchval("INSERT INTO lists (name) VALUES ($1) RETURNING id", name) for name in ("mine", "never")
    ]
    await app.execute("SELECT subscribe_hash(address_hash($1), $2, 'test')", mail.address, mine)
    await app.execute("SELECT unsubscribe_hash(address_hash($1), $2, 'test')", mail.address, never)
    with monkeypatch.context() as before:
        before.setitem(sendgrid._MEANINGS, "processed", UNSUBSCRIBED)
        event = signing.sendgrid_event("processed", mail.address, delivery_id=mail.reference)
        assert await service.post("sendgrid", *signing.sendgrid([event])) == 200
    on = "SELECT list_id FROM subscriptions WHERE subscribed"
    assert await app.fetch(on) == []
    assert await suppressed(app, mail.address) == "unsubscribed"
    await reread_all(app, provider=None, faults_only=False)
    assert await suppressed(app, mail.address) is None
    assert [row[0] for row in await app.fetch(on)] == [mine]
    assert (await verify(app, None)).equal


async def test_what_could_not_be_read_is_read_after_the_mend(service: Service, app: Connection, monkeypatch):
    """A fault of ours in reading: taken, kept, 200; and told as if it had been read at once."""
    mail = (await send(app))[0]

    def broken(raw: bytes) -> Any:
        raise KeyError("a bug")

    record = {"RecordType": "SpamComplaint", "ID": 1, "Email": mail.address, "MessageID": mail.message_id}
    record |= {"Type": "SpamComplaint", "BouncedAt": "2026-03-10T11:00:00Z"}
    with monkeypatch.context() as before:
        before.setitem(reading.PARSERS, "postmark", broken)
        assert await service.post("postmark", *signing.postmark(record)) == 200
    assert await app.fetchval("SELECT fault FROM webhook_inbox") == "item 0: reading failed (KeyError)"
    assert await reread_all(app, provider="sendgrid", faults_only=True) == Reread()
    assert await reread_all(app, provider=None, faults_only=True) == Reread(1, 1, 0, 0)
    assert await log_of(app, mail) == ["Complained"]
    assert await suppressed(app, mail.address) == "complained"
    assert await app.fetchval("SELECT fault FROM webhook_inbox") is None
    assert await reread_all(app, provider=None, faults_only=True) == Reread()


def test_the_event_says_what_it_takes_back():
    assert Retracted("7", "Bounced").was == "Bounced"
    assert postmark.NAME in reading.PARSERS


async def test_the_command_reads_anew_and_lists_what_is_nobodys(
    service: Service, app: Connection, database: str, tmp_path: Path, monkeypatch
):
    mail = (await send(app))[0]
    monkeypatch.setitem(sendgrid._CLASSIFICATIONS, "novel", HARD)  # here, and not in the command's process
    assert await service.post("sendgrid", *bounce(mail)) == 200
    stranger = signing.sendgrid_event("delivered", "s@x.example", sg_message_id="elsewhere.1")
    assert await service.post("sendgrid", *signing.sendgrid([stranger])) == 200

    async def run(*arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postledger", *arguments, "--database", database, "--json"),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate()
        assert process.returncode == 0
        return json.loads(out)

    assert await run("webhooks", "reprocess") == {"payloads": 2, "added": 0, "changed": 1, "faults": 0}
    assert await log_of(app, mail) == ["Bounced", "Retracted", "Bounced"]
    assert await app.fetchval("SELECT unsealed()") is False
    checks = {check["name"]: check["detail"] for check in (await run("doctor"))["checks"]}
    assert "1 things said of mails that are not found yet" in checks["webhooks"]
    listed = await run("webhooks", "unlinked")
    assert [(item["provider"], item["message_id"]) for item in listed["items"]] == [("sendgrid", "elsewhere")]
    assert listed["next"] is None
