"""Feedback that comes before its mail can be found; what it proves; what follows from it in any order."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from attrs import evolve

from postledger.database import Connection
from postledger.ledger import campaigns, feedback, senders
from postledger.ledger.campaigns import Settings, Source
from postledger.ledger.queue import Delivery
from postledger.projections.verify import verify
from postledger.workers.writer import Writer
from tests.campaigns import change, claim, draft, enlist, enqueue, sent, settle, unknown
from tests.clock import NOON, set_clock, stop_clock
from tests.eventually import eventually
from tests.web.webhooks import signing
from tests.web.webhooks.conftest import Mail, log_of, send, suppressed
from tests.web.webhooks.service import Service

HOUR = timedelta(hours=1)


async def look(conn: Connection) -> feedback.Linked:
    return await feedback.link(conn, 100, timeout=10)


async def test_what_comes_before_the_send_is_settled_is_linked_after_it(service: Service, app: Connection):
    """The provider was faster than our own commit."""
    campaign = await draft(app)
    await change(app, campaign, "Started")
    await enqueue(app, campaign, [("k", "p@x.example")])
    row = (await claim(app, campaign, await enlist(app), 1)).rows[0]
    mail = Mail(campaign, row.delivery_id, "p@x.example", "the-providers-own")
    event = signing.sendgrid_event("spamreport", mail.address, sg_message_id="the-providers-own.recvd-1")
    assert await service.post("sendgrid", *signing.sendgrid([event])) == 200
    assert await log_of(app, mail) == []
    assert await suppressed(app, mail.address) == "complained", "that does not wait"
    await settle(app, campaign, [evolve(sent(row), body={**sent(row).body, "message_id": mail.message_id})])

    async def linked() -> None:
        assert await log_of(app, mail) == ["Complained"]

    await eventually(linked, within=15)
    assert await feedback.unlinked(app, before=None, limit=5) == []
    assert (await verify(app, None)).equal


async def test_what_is_never_found_is_looked_for_less_and_less_then_listed(
    service: Service, app: Connection, owner: Connection
):
    await stop_clock(owner)
    event = signing.sendgrid_event("delivered", "p@x.example", at=NOON, sg_message_id="somebody-elses.1")
    assert await service.post("sendgrid", *signing.sendgrid([event], at=NOON)) == 200
    at, looks = NOON, 0
    while (next_at := (await feedback.unlinked(app, before=None, limit=5))[0].link_at) is not None:
        assert next_at > at
        at, looks = next_at, looks + 1
        await set_clock(owner, at - timedelta(milliseconds=1))
        assert (await look(app)).linked == 0
        assert (await feedback.unlinked(app, before=None, limit=5))[0].tries == looks - 1, "not before it is due"
        await set_clock(owner, at)
        await look(app)
    assert looks == 7
    assert 24 * HOUR < at - NOON < 48 * HOUR
    assert (await look(app)).due_in is None
    one = (await feedback.unlinked(app, before=None, limit=5))[0]
    assert (one.provider, one.kind, one.message_id, one.tries) == ("sendgrid", "delivered", "somebody-elses", 7)


async def test_one_message_id_for_many_needs_the_address(service: Service, app: Connection):
    """A batch at Mailgun has one id for all of it."""
    first, second, third = await send(app)
    campaign = await draft(app, "batch")
    await change(app, campaign, "Started")
    await enqueue(app, campaign, [("a", "a@x.example"), ("b", "b@x.example")])
    rows = (await claim(app, campaign, await enlist(app), 2)).rows
    await settle(app, campaign, [evolve(sent(r), body={**sent(r).body, "message_id": "one-for-all"}) for r in rows])
    a, b = (Mail(campaign, row.delivery_id, str(row.email), "one-for-all") for row in rows)
    for recipient in ("A@x.example", "stranger@x.example"):
        fields = {"recipient": recipient, "message": {"headers": {"message-id": "one-for-all"}}}
        assert await service.post("mailgun", *signing.mailgun("delivered", **fields)) == 200
    assert await log_of(app, a) == ["Delivered"]
    assert await log_of(app, b) == []
    assert [await log_of(app, mail) for mail in (first, second, third)] == [[], [], []]
    assert len(await feedback.unlinked(app, before=None, limit=5)) == 1


async def test_word_of_the_provider_settles_an_unknown_outcome(service: Service, app: Connection):
    """It has the mail, so it did leave: a campaign that holds such ones need not ask anybody, and one that would send
    again need not."""
    for policy in ("hold", "resend"):
        campaign = await draft(app, policy, unknown=policy)
        await change(app, campaign, "Started")
        await enqueue(app, campaign, [("k", "p@x.example"), ("other", "q@x.example")])
        rows = (await claim(app, campaign, await enlist(app), 2)).rows
        await settle(app, campaign, [unknown(row, due_in=HOUR) for row in rows])
        mail, other = (Mail(campaign, row.delivery_id, str(row.email), "") for row in rows)
        fields = {"user-variables": {"delivery_id": mail.reference}, "message": {"headers": {"message-id": "mg-1"}}}
        for name in ("accepted", "delivered"):
            assert await service.post("mailgun", *signing.mailgun(name, recipient=mail.address, **fields)) == 200
        found = await app.fetch(
            "SELECT delivery_id, status, attempt FROM recipient_queue WHERE campaign_id = $1", campaign
        )
        waiting = {"hold": "unknown", "resend": "pending"}[policy]
        assert {tuple(row) for row in found} == {(mail.delivery, "sent", 1), (other.delivery, waiting, 1)}
        body = await app.fetchval("SELECT body FROM events WHERE campaign_id = $1 AND type = 'Sent'", campaign)
        assert body == {"attempt": 1, "provider": "mailgun", "message_id": "mg-1"}
        assert await log_of(app, mail) == ["Delivered"]
    assert (await verify(app, None)).equal


async def test_word_of_the_provider_changes_no_other_state(service: Service, app: Connection):
    """An operator's retry is not undone by what is told of the try before it."""
    mail = (await send(app))[0]
    campaign = await draft(app, "retried", unknown="hold")
    await change(app, campaign, "Started")
    await enqueue(app, campaign, [("k", "r@x.example")])
    row = (await claim(app, campaign, await enlist(app), 1)).rows[0]
    await settle(app, campaign, [unknown(row)])
    await app.execute("SELECT requeue($1, ARRAY[$2::bigint], 'retry', 'ann')", campaign, row.delivery_id)
    retried = Mail(campaign, row.delivery_id, "r@x.example", "")
    for one in (mail, retried):
        event = signing.sendgrid_event("processed", one.address, delivery_id=one.reference)
        assert await service.post("sendgrid", *signing.sendgrid([event])) == 200
    rows = await app.fetch(
        "SELECT status FROM recipient_queue WHERE delivery_id = ANY($1)", [mail.delivery, row.delivery_id]
    )
    assert sorted(r["status"] for r in rows) == ["pending", "sent"]
    assert await app.fetchval("SELECT count(*) FROM feedback WHERE kind = 'accepted' AND event IS NULL") == 2


def soft(mail: Mail, at: datetime) -> signing.Signed:
    event = {"type": "bounce", "bounce_classification": "Mailbox Unavailable", "status": "4.2.2"}
    told = signing.sendgrid_event("bounce", mail.address, at=at, delivery_id=mail.reference, **event)
    return signing.sendgrid([told])


async def test_five_soft_bounces_in_a_row_end_it_and_one_does_not(service: Service, app: Connection):
    at = signing.now() - timedelta(days=10)
    for n in range(12):
        mail = (await send(app, 1, f"week{n}"))[0]
        mail = evolve(mail, address="full@x.example")
        if n == 4:
            event = signing.sendgrid_event("delivered", mail.address, at=at + n * HOUR, delivery_id=mail.reference)
            assert await service.post("sendgrid", *signing.sendgrid([event])) == 200
            continue
        assert await service.post("sendgrid", *soft(mail, at + n * HOUR)) == 200
        assert await suppressed(app, mail.address) == ("bounced" if n >= 9 else None), n


async def test_an_unsubscription_leaves_the_list_or_everything(service: Service, app: Connection):
    lists = [await app.fetchval("INSERT INTO lists (name) VALUES ($1) RETURNING id", name) for name in ("a", "b")]
    first, second, third = await send(app)
    await app.execute("UPDATE campaigns SET list_id = $1 WHERE id = $2", lists[0], first.campaign)
    for mail in (first, second, third):
        for one in lists:
            await app.execute("SELECT subscribe_hash(address_hash($1), $2, 'test')", mail.address, one)
    events = [
        signing.sendgrid_event("group_unsubscribe", first.address, delivery_id=first.reference, asm_group_id=3),
        signing.sendgrid_event("unsubscribe", second.address, delivery_id=second.reference),
        signing.sendgrid_event("group_resubscribe", second.address, delivery_id=second.reference, asm_group_id=3),
    ]
    assert await service.post("sendgrid", *signing.sendgrid(events)) == 200
    rows = await app.fetch(
        "SELECT r.email, s.list_id FROM subscriptions s JOIN contacts c ON c.id = s.contact_id"
        " JOIN recipients r ON r.address_hash = c.address_hash WHERE s.subscribed"
    )
    assert {tuple(row) for row in rows} == {
        (first.address, lists[1]),
        (third.address, lists[0]),
        (third.address, lists[1]),
    }
    assert await suppressed(app, first.address) is None
    assert await suppressed(app, second.address) == "unsubscribed"


async def test_whatever_the_order_the_outcome_is_the_same(service: Service, app: Connection):
    """A late `delivered` hides no bounce, an open says that it arrived, and the flags add up."""
    mails = await send(app, 4)
    at = datetime(2026, 11, 30, 12, tzinfo=UTC)
    told = {
        0: (["bounce", "delivered", "deferred"], ("bounced", [])),
        1: (["open", "deferred", "spamreport"], ("delivered", ["complained", "opened"])),
        2: (["dropped", "processed"], ("failed", [])),
        3: (["click", "unsubscribe", "delivered"], ("delivered", ["clicked", "unsubscribed"])),
    }
    query = "SELECT outcome, flags FROM delivery_feedback WHERE campaign_id = $1 AND delivery_id = $2"
    for place, (names, (outcome, flags)) in told.items():
        mail = mails[place]
        events = [signing.sendgrid_event(name, mail.address, at=at, delivery_id=mail.reference) for name in names]
        assert await service.post("sendgrid", *signing.sendgrid(events)) == 200
        found = await app.fetchrow(query, mail.campaign, mail.delivery)
        assert (found["outcome"], sorted(found["flags"])) == (outcome, flags)
    shown = await app.fetch("SELECT feedback FROM deliveries ORDER BY delivery_id")
    assert [row["feedback"] for row in shown] == ["bounced", "complained", "bounced", "delivered"]


async def test_payloads_are_forgotten_and_what_they_said_stays(service: Service, app: Connection, owner: Connection):
    await stop_clock(owner)
    mail = (await send(app))[0]
    event = signing.sendgrid_event("delivered", mail.address, at=NOON, delivery_id=mail.reference)
    assert await service.post("sendgrid", *signing.sendgrid([event], at=NOON)) == 200
    await set_clock(owner, NOON + timedelta(days=89))
    assert await feedback.forget(app, 10) == 0
    await set_clock(owner, NOON + timedelta(days=91))
    assert await feedback.forget(app, 10) == 1
    assert await app.fetchval("SELECT payload FROM webhook_inbox") is None
    assert await log_of(app, mail) == ["Delivered"]


@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("smtp://user:env:NAME@smtp.postmarkapp.com:587", "X-PM-Metadata-delivery_id: 7.9"),
        ("smtps://user:secret@email-smtp.eu-west-1.amazonaws.com", "X-SES-MESSAGE-TAGS: delivery_id=7-9"),
        ("smtp://relay.shop.example", None),
        ("null://?render=1", None),
    ],
)
async def test_a_mail_takes_its_reference_through_a_providers_door(app: Connection, url: str, header: str | None):
    sender = await senders.keep(app, url)
    settings = Settings(name="door", mail_from="News <news@shop.example>", sender_id=sender)
    campaign = await campaigns.read(app, await campaigns.draft(app, settings, Source("Hello", "<p>Hello</p>", None)))
    writer = await Writer.load(app, campaign, None)
    delivery = Delivery(7, 9, uuid.uuid4(), 2, 1, key="k", email="p@x.example")
    lines = writer.compose(delivery).content.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert [line for line in lines if line.startswith(("X-PM", "X-SES", "X-SMTPAPI", "X-Mailgun"))] == (
        [] if header is None else [header]
    )
