"""The endpoint: who is let in, what is answered when, and what is written down."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from postledger.config import Webhooks
from postledger.database import Connection
from postledger.errors import ConfigurationError
from postledger.http.webhooks.doors import Doors
from postledger.projections.verify import verify
from tests.eventually import eventually
from tests.servers import PrivateServer
from tests.web.webhooks import signing
from tests.web.webhooks.conftest import log_of, send, suppressed
from tests.web.webhooks.service import Service, World, open_service


async def counts(conn: Connection) -> tuple[int, int, int]:
    """Payloads, things said, and feedback in the log."""
    return tuple(
        await conn.fetchrow(
            "SELECT (SELECT count(*) FROM webhook_inbox), (SELECT count(*) FROM feedback),"
            " (SELECT count(*) FROM events WHERE body ? 'feedback')"
        )
    )


async def test_a_complaint_is_stored_linked_logged_and_obeyed(service: Service, app: Connection):
    mail, other, _ = await send(app)
    body, headers = signing.mailgun(
        "complained", recipient=mail.address, **{"user-variables": {"delivery_id": mail.reference}}
    )
    assert await service.post("mailgun", body, headers) == 200
    assert await log_of(app, mail) == ["Complained"]
    assert await log_of(app, other) == []
    assert await suppressed(app, mail.address) == "complained"
    source = await app.fetchval("SELECT source FROM suppressions")
    assert source == f"delivery:{mail.reference}"
    assert await app.fetchval("SELECT payload FROM webhook_inbox") == body
    told = await app.fetchrow("SELECT body FROM events WHERE type = 'Complained'")
    assert told["body"].keys() == {"provider", "feedback", "occurred_at"}
    assert (await verify(app, None)).equal


@pytest.mark.parametrize("way", ["metadata", "own message id", "provider's message id", "another form of the address"])
async def test_a_mail_is_found_by_what_the_provider_brings_back(service: Service, app: Connection, way: str):
    mail = (await send(app))[1]
    fields: dict[str, Any] = {"recipient": mail.address, "message": {"headers": {}}}
    match way:
        case "metadata":
            fields["user-variables"] = {"delivery_id": mail.reference.replace(".", "-")}
        case "own message id":
            fields["message"] = {"headers": {"message-id": f"{mail.delivery}.{mail.campaign}@shop.example"}}
        case "provider's message id":
            fields["message"] = {"headers": {"message-id": mail.message_id}}
        case _:
            fields |= {"recipient": mail.address.upper(), "message": {"headers": {"message-id": mail.message_id}}}
    assert await service.post("mailgun", *signing.mailgun("delivered", **fields)) == 200
    assert await log_of(app, mail) == ["Delivered"]


async def test_what_ses_keeps_of_our_headers_names_the_mail(service: Service, app: Connection):
    """It puts a Message-ID of its own in the place of ours, and a tag may hold no dot."""
    first, second, _ = await send(app)
    at = signing.now().isoformat().replace("+00:00", "Z")
    event: dict[str, Any] = {
        "eventType": "Delivery",
        "delivery": {"timestamp": at, "recipients": [first.address]},
        "mail": {"timestamp": at, "messageId": "0100-x", "destination": [first.address], "headers": []},
    }
    event["mail"]["headers"] = [{"name": "X-Postledger-Delivery", "value": first.reference}]
    assert await service.post("ses", *signing.sns(event)) == 200
    event["mail"] |= {"tags": {"delivery_id": [second.reference.replace(".", "-")]}, "headers": []}
    event["delivery"]["recipients"] = [second.address]
    assert await service.post("ses", *signing.sns(event, version="1")) == 200
    assert await log_of(app, first) == await log_of(app, second) == ["Delivered"]


async def test_a_second_address_of_the_payload_is_suppressed_too(service: Service, app: Connection):
    """The mail went to one spelling, the provider names another: neither is written to any more."""
    mail = (await send(app))[0]
    other = mail.address.replace("@", "+tag@")
    posted = signing.postmark(
        {
            "RecordType": "SpamComplaint",
            "ID": 7,
            "Type": "SpamComplaint",
            "Email": other,
            "MessageID": mail.message_id,
            "BouncedAt": "2026-03-10T11:00:00Z",
        }
    )
    assert await service.post("postmark", *posted) == 200
    assert await suppressed(app, mail.address) == await suppressed(app, other) == "complained"
    assert await log_of(app, mail) == ["Complained"]


async def test_the_same_a_hundred_times_at_once_is_one(service: Service, app: Connection):
    mail = (await send(app))[0]
    event = signing.sendgrid_event("spamreport", mail.address, sg_message_id=f"{mail.message_id}.x", delivery_id="x")
    event["sg_message_id"] = mail.message_id.replace(".", "-") + ".recvd-1"
    other = {**event, "sg_event_id": "changed-when-tried-again"}
    posts = [signing.sendgrid([event, other, event]) for _ in range(100)]
    assert set(await asyncio.gather(*(service.post("sendgrid", *post) for post in posts))) == {200}
    assert (await counts(app))[1:] == (1, 1)
    assert await app.fetchval("SELECT count(*) FROM events WHERE type = 'Suppressed'") == 1


async def test_one_bad_item_harms_no_other(service: Service, app: Connection):
    mails = await send(app)
    good = [
        signing.sendgrid_event("delivered", mail.address, delivery_id=mail.reference, category=["a"]) for mail in mails
    ]
    bad = [None, 7, {"event": "open"}, {"email": "x"}, {"event": "open", "timestamp": "soon"}, {"event": []}]
    odd = signing.sendgrid_event("delivered", "x\u0000y@\ud800", delivery_id="\u0000", sg_message_id="\udfff")
    post = signing.sendgrid([bad[0], good[0], *bad[1:4], good[1], odd, *bad[4:], good[2]])
    assert await service.post("sendgrid", *post) == 200
    assert [await log_of(app, mail) for mail in mails] == [["Delivered"]] * 3
    assert await app.fetchval("SELECT count(*) FROM feedback") == 4
    fault = await app.fetchval("SELECT fault FROM webhook_inbox")
    assert fault.count("item") == 6
    assert "soon" not in fault, "it repeats nothing of the payload"


async def test_a_signed_body_that_is_no_json_is_kept(service: Service, app: Connection):
    assert await service.post("sendgrid", *signing.sendgrid([], raw=b"\x00[{")) == 200
    assert await counts(app) == (1, 0, 0)
    assert await app.fetchval("SELECT fault FROM webhook_inbox") == "item 0: the body is no JSON"


FORGED = {
    "mailgun": ((lambda b, h: (b.replace(b'"signature": "', b'"signature": "0'), h)), 401),
    "sendgrid": ((lambda b, h: (b + b"\n", h)), 401),
    "ses": ((lambda b, h: (b.replace(b"Delivery", b"Bounce"), h)), 403),
    "postmark": ((lambda b, h: (b, {**h, "Authorization": "Basic " + "eDp5"})), 401),
}


def genuine(provider: str) -> signing.Signed:
    at = signing.now().isoformat().replace("+00:00", "Z")
    match provider:
        case "mailgun":
            return signing.mailgun("delivered", recipient="a@x.example")
        case "sendgrid":
            return signing.sendgrid([signing.sendgrid_event("delivered", "a@x.example", sg_message_id="m.1")])
        case "ses":
            return signing.sns({"eventType": "Delivery", "mail": {"timestamp": at, "messageId": "m"}})
    return signing.postmark({"RecordType": "Delivery", "MessageID": "m", "Recipient": "a@x.example", "DeliveredAt": at})


@pytest.mark.parametrize("provider", FORGED)
async def test_a_forged_post_leaves_nothing(service: Service, app: Connection, provider: str):
    forge, status = FORGED[provider]
    body, headers = genuine(provider)
    assert await service.post(provider, *forge(body, headers)) == status
    assert await service.post(provider, body) == (status if provider in ("sendgrid", "postmark") else 200)
    assert (await counts(app))[0] == (0 if provider in ("sendgrid", "postmark") else 1)
    assert await service.post(provider, body, headers) == 200


GARBAGE = (b"", b"[]", b"null", b"{}", b"\xff", b'{"signature": 1, "event-data": 2}', b"[" * 100_000)


async def test_garbage_is_refused_with_the_providers_own_status(service: Service, app: Connection):
    for provider, wanted in {"mailgun": 406, "sendgrid": 401, "ses": 403, "postmark": 401}.items():
        assert {await service.post(provider, body) for body in GARBAGE} == {wanted}
    assert await counts(app) == (0, 0, 0)


async def test_old_signatures_and_future_ones_are_refused(service: Service, app: Connection):
    day = timedelta(hours=27)
    assert await service.post("mailgun", *signing.mailgun("delivered", at=signing.now() - day)) == 406
    assert await service.post("sendgrid", *signing.sendgrid([], at=signing.now() - day)) == 401
    assert await service.post("sendgrid", *signing.sendgrid([], at=signing.now() + timedelta(hours=1))) == 401
    old = (signing.now() - day).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    assert await service.post("ses", *signing.sns("x", Timestamp=old)) == 403
    assert await counts(app) == (0, 0, 0)


async def test_a_token_of_mailgun_stands_for_one_event(service: Service, app: Connection):
    """The signature does not cover the event: whoever has heard one could say anything with it."""
    body, headers = signing.mailgun("delivered", recipient="a@x.example", token="t" * 50)
    assert await service.post("mailgun", body, headers) == 200
    post = json.loads(body)
    assert await service.post("mailgun", json.dumps(post, indent=1).encode(), headers) == 200, (
        "the same, written otherwise"
    )
    post["event-data"] |= {"event": "complained", "id": "other"}
    assert await service.post("mailgun", json.dumps(post).encode(), headers) == 406
    assert await suppressed(app, "a@x.example") is None
    assert (await counts(app))[:2] == (1, 1)


async def test_a_topic_of_somebody_else_asks_for_nothing(service: Service, app: Connection, world: World):
    foreign = signing.sns({"eventType": "Send"}, TopicArn="arn:aws:sns:eu-central-1:999999999999:mail")
    assert await service.post("ses", *foreign) == 403
    assert await service.post("ses", *signing.confirmation(TopicArn="arn:aws:sns:eu-central-1:999999999999:x")) == 403
    raw = json.dumps({"eventType": "Send", "mail": {}}).encode()
    assert await service.post("ses", raw) == 403, "raw delivery has no signature"
    inside = "https://169.254.169.254/SimpleNotificationService-0123456789abcdef.pem"
    assert await service.post("ses", *signing.sns("x", SigningCertURL=inside)) == 403
    elsewhere = "https://sns.eu-central-1.amazonaws.com.evil.example/?Action=ConfirmSubscription"
    assert await service.post("ses", *signing.confirmation(SubscribeURL=elsewhere)) == 403
    assert world.asked in ([], [signing.CERTIFICATE_URL])
    assert await counts(app) == (0, 0, 0)


async def test_a_subscription_is_confirmed_once_and_asked_again_until_it_is(service, app, world: World):
    world.confirms = False
    posted = signing.confirmation()
    assert await service.post("ses", *posted) == 503
    assert await counts(app) == (0, 0, 0)
    world.confirms = True
    assert await service.post("ses", *posted) == 200
    before = len(world.asked)
    assert await service.post("ses", *posted) == 200
    assert len(world.asked) == before
    assert world.asked.count(signing.CERTIFICATE_URL) == 1
    sentence = signing.sns("Successfully validated SNS topic for Amazon SES event publishing.")
    assert await service.post("ses", *sentence) == 200
    assert await app.fetchval("SELECT array_agg(DISTINCT kind) FROM feedback") == ["control"]


async def test_a_certificate_that_cannot_be_had_is_asked_for_again(service: Service, app: Connection, world: World):
    world.pages = {}
    posted = genuine("ses")
    assert await service.post("ses", *posted) == 503
    world.pages = {signing.CERTIFICATE_URL: b"not a certificate"}
    assert await service.post("ses", *posted) == 503
    world.pages = {signing.CERTIFICATE_URL: signing.certificate()}
    assert await service.post("ses", *posted) == 200


async def test_invented_certificates_are_not_asked_for_without_end(service: Service, world: World):
    urls = [signing.CERTIFICATE_URL.replace("abcdef", f"{n:06x}") for n in range(40)]
    statuses = [await service.post("ses", *signing.sns("x", SigningCertURL=url)) for url in urls]
    assert set(statuses) == {503}
    assert len(world.asked) < 15


async def test_without_a_key_nothing_is_lost_and_nothing_let_in(database: str, app: Connection, world: World):
    async with open_service(database, Webhooks(), world) as service:
        for provider in FORGED:
            assert await service.post(provider, *genuine(provider)) == 503
        assert await service.post("brevo", b"{}") == 404
    assert await counts(app) == (0, 0, 0)


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (Webhooks(sendgrid=("hush",)), "POSTLEDGER_WEBHOOK_SENDGRID"),
        (Webhooks(ses=("hush",)), "POSTLEDGER_WEBHOOK_SES"),
        (Webhooks(postmark=("hush",)), "POSTLEDGER_WEBHOOK_POSTMARK"),
    ],
)
def test_a_key_in_another_form_is_named_and_not_repeated(keys: Webhooks, named: str):
    with pytest.raises(ConfigurationError, match=named) as refused:
        Doors(keys, World({}))
    assert "hush" not in str(refused.value)


async def test_our_own_trouble_is_503_and_passes(own_server: PrivateServer, world: World):
    posted = genuine("postmark")
    async with open_service(own_server.dsn, signing.keys(), world) as service:
        assert await service.post("postmark", *genuine("mailgun")) == 401
        await own_server.stop("immediate")
        assert await service.post("postmark", *posted) == 503
        await own_server.start()

        async def taken() -> None:
            assert await service.post("postmark", *posted) == 200

        await eventually(taken, within=20)


async def test_what_the_database_cannot_take_is_kept_as_it_came(service: Service, app: Connection, owner: Connection):
    """A post beside it is not harmed, whatever the reason."""
    mails = await send(app)
    await owner.execute(
        "CREATE FUNCTION break_one() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.native_key LIKE '%poison' THEN RAISE EXCEPTION 'broken' USING ERRCODE = '22000'; END IF;"
        " RETURN NEW; END $$;"
        "CREATE TRIGGER break_one BEFORE INSERT ON feedback FOR EACH ROW EXECUTE FUNCTION break_one();"
    )
    posts = [
        signing.mailgun("delivered", id=ident, **{"user-variables": {"delivery_id": mail.reference}})
        for mail, ident in zip(mails, ("a", "poison", "c"), strict=True)
    ]
    assert await asyncio.gather(*(service.post("mailgun", *post) for post in posts)) == [200, 200, 200]
    assert [await log_of(app, mail) for mail in mails] == [["Delivered"], [], ["Delivered"]]
    assert await app.fetch("SELECT payload FROM webhook_inbox WHERE fault LIKE '%22000%'") == [(posts[1][0],)]


async def test_many_at_once_about_the_same_people_do_not_deadlock(service: Service, app: Connection):
    """While a sender suppresses the same ones."""
    mails = await send(app, 20)

    async def tell(turn: int) -> int:
        order = mails if turn % 2 else mails[::-1]
        events = [
            signing.sendgrid_event(kind, mail.address, delivery_id=mail.reference)
            for mail in order
            for kind in ("spamreport", "unsubscribe")
        ]
        return await service.post("sendgrid", *signing.sendgrid(events))

    async def suppress() -> None:
        for mail in mails[::-1]:
            await app.execute("SELECT suppress($1, 'operator', 'test')", mail.address)

    statuses, _ = await asyncio.gather(asyncio.gather(*(tell(turn) for turn in range(50))), suppress())
    assert set(statuses) == {200}
    assert await app.fetchval("SELECT count(*) FROM suppressions") == 20
    assert (await verify(app, None)).equal


async def test_two_services_take_each_thing_once_together(
    service: Service, database: str, app: Connection, world: World
):
    """A provider's posts go to several processes, and its repetitions to the other one."""
    mails = await send(app, 20)
    events = [signing.sendgrid_event("unsubscribe", mail.address, delivery_id=mail.reference) for mail in mails]
    posts = [signing.sendgrid([event, other]) for event in events for other in events[::-1]]
    async with open_service(database, signing.keys(), world) as second:
        both = [one.post("sendgrid", *post) for post in posts for one in (service, second)]
        assert set(await asyncio.gather(*both)) == {200}
    assert (await counts(app))[1:] == (20, 20)
    assert await app.fetchval("SELECT count(*) FROM suppressions") == 20
    assert (await verify(app, None)).equal
