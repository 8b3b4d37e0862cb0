"""What becomes of a recipient, by what the relay says: one worker, a real database, a real relay."""

import asyncio
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from postledger.demo.behaviours import Accept, Answer, Behaviour, Cut, Slow, by_tag
from postledger.ledger import campaigns as ledger
from postledger.ledger import senders
from postledger.ledger.campaigns import Source
from tests.eventually import eventually
from tests.workers.conftest import MakeInbox
from tests.workers.mailing import Inbox, Mailing, addresses, of_type
from tests.workers.providers.relays import stranger

ADA = "ada@example.net"


async def test_everybody_gets_one_copy_and_nobody_anothers(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox()
    campaign = await mailing.started(relay.url, addresses(150))
    other = await mailing.started(relay.url, addresses(30))

    async with mailing.working(concurrency=10):
        await mailing.until(campaign, "completed")
        await mailing.until(other, "completed")

    assert await mailing.counts(campaign) == {"sent": 150}
    for one in (campaign, other):
        mails = [mail for mail in relay.mails if mail.headers["x-postledger-delivery"].startswith(f"{one}.")]
        await mailing.check_envelopes(one, mails)
        await mailing.check_copies(one, Counter(mail.recipient for mail in mails))
        await mailing.check(one)
    assert len(relay.mails) == 180
    assert relay.out_of_step == 0


async def test_a_busy_mailbox_is_tried_again(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(by_tag)
    campaign = await mailing.started(relay.url, addresses(3, "busy"))

    async with mailing.working():
        await mailing.until_happened(campaign, "Deferred", 3)
        await mailing.skip(10)
        await mailing.until(campaign, "completed")

    address = addresses(3, "busy")[0]
    events = await mailing.events(campaign, address)
    assert [event.type for event in events] == ["Queued", "Claimed", "Deferred", "Claimed", "Sent"]
    (deferred,) = of_type(events, "Deferred")
    assert (deferred["attempt"], deferred["class"], deferred["code"]) == (1, "retry", "450 4.2.0")
    assert [claimed["attempt"] for claimed in of_type(events, "Claimed")] == [1, 2]
    assert relay.received[address] == 1
    await mailing.check(campaign)


async def test_a_busy_mailbox_is_given_up_by_age(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(lambda _: Answer("rcpt", 450, "4.2.0 Mailbox busy"))
    campaign = await mailing.started(relay.url, [ADA], give_up=timedelta(seconds=20))

    async with mailing.working():
        await mailing.until_happened(campaign, "Deferred")
        await mailing.skip(10)
        await mailing.until(campaign, "completed")

    assert await mailing.types(campaign, ADA) == ["Queued", "Claimed", "Deferred", "Claimed", "Failed"]
    (failed,) = of_type(await mailing.events(campaign, ADA), "Failed")
    assert (failed["attempt"], failed["class"], failed["code"]) == (2, "exhausted", "450 4.2.0")


async def test_who_is_sent_round_again_is_as_young_as_at_first(mailing: Mailing, inbox: MakeInbox) -> None:
    """However long ago it was given up."""
    relay = await inbox(lambda _: Answer("rcpt", 450, "4.2.0 Mailbox busy", times=3))
    campaign = await mailing.started(relay.url, [ADA], give_up=timedelta(seconds=20))

    async with mailing.working():
        await mailing.until_happened(campaign, "Deferred")
        await mailing.skip(10)
        await mailing.until_counts(campaign, failed=1)
        await mailing.skip(1000)
        await mailing.conn.fetchval(ledger.sql.requeue, campaign, None, "retry", "operator")
        await mailing.until_happened(campaign, "Deferred", 2)
        await mailing.skip(1010)
        await mailing.until(campaign, "completed")

    types = await mailing.types(campaign, ADA)
    assert types[5:] == ["Requeued", "Claimed", "Deferred", "Claimed", "Sent"]
    await mailing.check(campaign)


async def test_a_dead_address_has_failed_and_is_suppressed_in_one_transaction(
    mailing: Mailing, inbox: MakeInbox
) -> None:
    relay = await inbox(by_tag)
    (gone,) = addresses(1, "gone")
    campaign = await mailing.started(relay.url, [gone, ADA])

    async with mailing.working():
        await mailing.until(campaign, "completed")

    assert await mailing.counts(campaign) == {"sent": 1, "failed": 1}
    query = "SELECT count(DISTINCT xid) FROM events WHERE type IN ('Failed', 'Suppressed')"
    assert await mailing.conn.fetchval(query) == 1
    assert await mailing.conn.fetchval("SELECT reason FROM suppressions") == "bounced"
    assert "No such user" in await mailing.conn.fetchval("SELECT text FROM replies WHERE text LIKE '550%'")

    again = await mailing.started(relay.url, [gone])
    assert await mailing.counts(again) == {"skipped": 1}
    await mailing.check(campaign)


async def test_a_connection_lost_before_the_dot_costs_an_attempt_and_no_doubt(
    mailing: Mailing, inbox: MakeInbox
) -> None:
    relay = await inbox(by_tag)
    (cut,) = addresses(1, "cut-before-dot")
    campaign = await mailing.started(relay.url, [cut])

    async with mailing.working():
        await mailing.until_happened(campaign, "Deferred")
        await mailing.skip(10)
        await mailing.until(campaign, "completed")

    assert await mailing.types(campaign, cut) == ["Queued", "Claimed", "Deferred", "Claimed", "Sent"]
    assert relay.received[cut] == 1


async def test_a_connection_lost_after_the_dot_is_unknown_and_resent(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(by_tag)
    (cut,) = addresses(1, "cut-after-dot")
    campaign = await mailing.started(relay.url, [cut])

    async with mailing.working():
        await mailing.until_happened(campaign, "Requeued")
        await mailing.skip(10)
        await mailing.until(campaign, "completed")

    assert await mailing.types(campaign, cut) == ["Queued", "Claimed", "OutcomeUnknown", "Requeued", "Claimed", "Sent"]
    assert relay.received[cut] == 2
    assert len({mail.message_id for mail in relay.mails}) == 1  # receivers fold the two into one
    await mailing.check_copies(campaign, relay.received)
    await mailing.check(campaign)


async def test_a_connection_lost_after_the_dot_is_held(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(by_tag)
    (cut,) = addresses(1, "cut-after-dot")
    campaign = await mailing.started(relay.url, [cut, ADA], unknown="hold")

    async with mailing.working():
        await mailing.until(campaign, "completed")

    assert await mailing.types(campaign, cut) == ["Queued", "Claimed", "OutcomeUnknown"]
    assert await mailing.counts(campaign) == {"sent": 1, "unknown": 1}
    assert relay.received[cut] == 1
    await mailing.check(campaign)


async def test_unknown_outcomes_end_by_count(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(lambda _: Cut("dot"))
    campaign = await mailing.started(relay.url, [ADA], attempts=2)

    async with mailing.working():
        await mailing.until_happened(campaign, "Requeued")
        await mailing.skip(10)
        await mailing.until(campaign, "completed")

    assert (await mailing.types(campaign, ADA))[-3:] == ["Claimed", "OutcomeUnknown", "Failed"]
    assert relay.received[ADA] == 2
    await mailing.check(campaign)


async def test_a_letter_that_fails_for_one_fails_for_nobody_else(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox()
    source = Source("Hello", "<p>{{ 10 % (n - 3) }}</p>", None)
    campaign = await mailing.started(relay.url, addresses(5), source=source)

    async with mailing.working():
        await mailing.until(campaign, "completed")

    assert await mailing.counts(campaign) == {"sent": 4, "failed": 1}
    (failed,) = of_type(await mailing.events(campaign, addresses(5)[1]), "Failed")
    assert (failed["class"], failed["code"]) == ("render", "html")
    assert addresses(5)[1] not in relay.received
    await mailing.check(campaign)


async def test_a_relay_that_is_down_burns_no_attempt_and_is_found_again(mailing: Mailing) -> None:
    relay = await Inbox().start()
    campaign = await mailing.started(relay.url, addresses(40))
    await relay.stop()

    async with mailing.working(concurrency=10):
        await asyncio.sleep(0.3)
        assert await mailing.happened(campaign) == {"Queued": 40}  # not one claim for a relay that lets nobody in
        await relay.start(port=relay.port)
        await mailing.until(campaign, "completed")

    assert await mailing.happened(campaign) == {"Queued": 40, "Claimed": 40, "Sent": 40}
    await mailing.check(campaign)
    await relay.stop()


async def test_a_relay_that_goes_down_in_the_middle(mailing: Mailing) -> None:
    relay = await Inbox(lambda _: Slow(timedelta(milliseconds=20))).start()
    campaign = await mailing.started(relay.url, addresses(60))

    async with mailing.working(concurrency=5):
        await eventually(lambda: _at_least(relay.accepted, 10))
        await relay.stop()
        await mailing.until_happened(campaign, "Released")
        await relay.start(port=relay.port)
        await mailing.skip(20)
        await mailing.until(campaign, "completed")

    assert await mailing.counts(campaign) == {"sent": 60}
    query = "SELECT DISTINCT body ->> 'reason' FROM events WHERE type = 'Released'"
    assert [row[0] for row in await mailing.conn.fetch(query)] == ["relay_down"]
    await mailing.check_copies(campaign, relay.received)
    await mailing.check(campaign)
    await relay.stop()


async def test_a_folder_is_made_before_the_first_letter_goes_there(mailing: Mailing, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "letters"
    campaign = await mailing.started(f"file://{folder}", addresses(12))

    async with mailing.working():
        await mailing.until(campaign, "completed")

    assert await mailing.happened(campaign) == {"Queued": 12, "Claimed": 12, "Sent": 12}
    assert len(list(folder.iterdir())) == 12


async def test_one_relay_that_is_down_stops_no_other(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox()
    down = await Inbox().start()
    await down.stop()
    waiting = await mailing.started(down.url, addresses(20), priority=1)
    campaign = await mailing.started(relay.url, addresses(20))

    async with mailing.working(concurrency=5):
        await mailing.until(campaign, "completed")

    assert await mailing.counts(waiting) == {"pending": 20}


@pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")
async def test_a_refused_login_pauses_and_the_corrected_one_goes_on(mailing: Mailing) -> None:
    """No attempt is burned, and the worker that met the refusal takes the new password."""
    async with stranger(auth=True) as relay:
        where = f"127.0.0.1:{relay.port}?starttls=off"
        campaign = await mailing.started(f"smtp://ada:wrong@{where}", addresses(5))
        other = await mailing.started(f"smtp://ada:wrong@{where}", addresses(2))

        async with mailing.working():
            await mailing.until(campaign, "paused")
            await mailing.until(other, "paused")
            assert await mailing.paused_for(campaign) == "provider_auth"
            assert relay.mails == []

            await senders.keep(mailing.conn, f"smtp://ada:l0velace@{where}")
            await mailing.change(campaign, "Resumed")
            await mailing.until(campaign, "completed")

        assert len(relay.mails) == 5
        assert await mailing.status(other) == "paused"
    assert (await mailing.happened(campaign))["Failed"] == 0
    await mailing.check(campaign)


async def test_three_refused_messages_in_a_row_pause_the_campaign(mailing: Mailing, inbox: MakeInbox) -> None:
    refused, under_way = Answer("eod", 554, "5.7.1 Message rejected as spam"), Slow(timedelta(seconds=0.5))
    people = addresses(20)
    relay = await inbox(lambda recipient: refused if recipient in people[:3] else under_way)
    campaign = await mailing.started(relay.url, people)

    async with mailing.working(concurrency=1):
        await mailing.until(campaign, "paused")
        await eventually(lambda: _no_claims(mailing))

    assert await mailing.paused_for(campaign) == "provider_refused"
    counts = await mailing.counts(campaign)
    assert counts["failed"] == 3
    assert counts["pending"] > 0
    assert sum(counts.values()) == 20
    await mailing.check(campaign)


async def test_refusals_that_are_not_in_a_row_pause_nothing(mailing: Mailing, inbox: MakeInbox) -> None:
    def choice(recipient: str) -> Behaviour:
        refused = int(recipient.partition("@")[0].lstrip("p")) % 3
        return Answer("eod", 554, "5.7.1 Message rejected as spam") if refused else Accept()

    relay = await inbox(choice)
    campaign = await mailing.started(relay.url, addresses(21))

    async with mailing.working(concurrency=1):
        await mailing.until(campaign, "completed")

    assert await mailing.counts(campaign) == {"sent": 7, "failed": 14}


async def test_a_relay_that_wants_less_slows_the_whole_sender_down(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox(lambda _: Answer("rcpt", 450, "4.7.1 Daily sending limit reached", times=1))
    campaign = await mailing.started(relay.url, addresses(20))

    async with mailing.working(concurrency=4):
        await mailing.until_happened(campaign, "Released")
        await eventually(lambda: _no_claims(mailing))
        happened = await mailing.happened(campaign)

    assert happened["Claimed"] <= 8  # the first claim, and one that was under way
    assert happened["Released"] == happened["Claimed"]
    assert happened["Deferred"] == happened["Failed"] == 0
    assert await mailing.counts(campaign) == {"pending": 20}


def _at_least(found: int, expected: int) -> None:
    assert found >= expected


async def _no_claims(mailing: Mailing) -> None:
    assert await mailing.claims() == 0
