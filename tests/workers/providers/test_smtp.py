"""SMTP over real sockets: what a relay does at each step, and what is then said about the mail."""

import asyncio
import re
from datetime import timedelta

import pytest

from postledger.demo.behaviours import Accept, Answer, Behaviour, Cut, Slow
from postledger.workers.providers import smtp_pool
from postledger.workers.providers.base import NotBegun, Withheld
from postledger.workers.replies import classify
from tests.eventually import eventually
from tests.workers.providers.conftest import MakeProvider, MakeRelay
from tests.workers.providers.mails import HEAD, Permit, envelope, send
from tests.workers.providers.relays import Manners


def refuse_gone(recipient: str) -> Behaviour:
    return Answer("rcpt", 550, "5.1.1 No such user here") if recipient.startswith("gone") else Accept()


def only(*steps: str) -> frozenset[str]:
    return frozenset(steps)


# --- The normal course.


async def test_taken(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    reply = await send(provider(catcher.url))
    assert (reply.stage, reply.code, reply.text) == ("eod", 250, "250 2.0.0 Ok: queued as 1")
    assert classify(reply).accepted
    assert [(mail.sender, mail.recipient) for mail in catcher.mails] == [("news@news.example.com", "ada@example.net")]


async def test_one_session_carries_many_mails(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    sender = provider(catcher.url)
    for number in range(20):
        assert classify(await send(sender, f"r{number}@example.net")).accepted
    assert (catcher.accepted, catcher.connections, catcher.out_of_step) == (20, 1, 0)


@pytest.mark.parametrize("stage", ["rcpt", "data", "eod"])
async def test_after_a_refusal_the_same_session_goes_on(relay: MakeRelay, provider: MakeProvider, stage: str):
    def behaviour(recipient: str) -> Behaviour:
        return Answer(stage, 550, "5.1.1 No such user here") if recipient.startswith("gone") else Accept()

    catcher = await relay(behaviour)
    sender = provider(catcher.url)
    for _ in range(3):
        refusal = await send(sender, "gone@example.net")
        assert (refusal.stage, refusal.code, refusal.enhanced) == (stage, 550, "5.1.1")
        assert classify(await send(sender)).accepted
    assert (catcher.accepted, catcher.connections, catcher.out_of_step) == (3, 1, 0)


async def test_too_many_refusals_in_a_row_get_a_new_session(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(refuse_gone)
    sender = provider(catcher.url)
    for _ in range(smtp_pool.REFUSALS_PER_SESSION + 1):
        assert (await send(sender, "gone@example.net")).code == 550
    assert (catcher.connections, catcher.out_of_step) == (2, 0)


LINES = [b".", b"..", b".x", b"", b"x" * 998, b"." + b"x" * 997, b"a.b", b"." * 50, b"", b"."]


@pytest.mark.parametrize(
    "body",
    [
        b"\r\n".join(LINES) + b"\r\n",
        b"\r\n".join(reversed(LINES)) + b"\r\n",
        b".\r\n",
        b"..\r\n.\r\n",
        b"\r\n.\r\n\r\n.\r\n",
        (b".dots at the start of each line\r\n" * 30_000),
    ],
    ids=["lines", "reversed", "dot", "dots", "empty-lines", "900-kb"],
)
async def test_dots_travel_unharmed(relay: MakeRelay, provider: MakeProvider, body: bytes):
    catcher = await relay()
    assert classify(await send(provider(catcher.url), body=body)).accepted
    assert catcher.mails[0].content == HEAD + body


async def test_a_body_that_begins_with_a_dot(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    mail = envelope()
    for content in (b".\r\n", b".x\r\n", b"..\r\n"):
        odd = type(mail)(mail.sender, mail.recipient, content, "1")
        assert classify(await provider(catcher.url).send(odd, Permit())).accepted
        assert catcher.mails[-1].content == content


async def test_a_message_without_a_last_line_end_gets_one(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    assert classify(await send(provider(catcher.url), body=b"no end")).accepted
    assert catcher.mails[0].content == HEAD + b"no end\r\n"


async def test_three_line_banner(relay: MakeRelay, provider: MakeProvider):
    banner = "220-mx.example.net ESMTP\r\n220-No spam, please\r\n220 Ready"
    catcher = await relay(manners=Manners(says={"greeting": banner}))
    assert classify(await send(provider(catcher.url))).accepted


async def test_a_relay_that_only_knows_helo(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(says={"ehlo": "502 5.5.1 EHLO not known"}))
    assert classify(await send(provider(catcher.url))).accepted
    assert catcher.commands[2] == "MAIL FROM:<news@news.example.com>"


async def test_extensions_are_used_where_they_are_offered(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    mail = envelope()
    await provider(catcher.url).send(type(mail)(mail.sender, mail.recipient, mail.content, "7=1+a b"), Permit())
    size = len(mail.content)
    assert catcher.commands[1:3] == [
        f"MAIL FROM:<news@news.example.com> SIZE={size} RET=HDRS ENVID=7+3D1+2Ba+20b",
        "RCPT TO:<ada@example.net> NOTIFY=FAILURE,DELAY",
    ]


async def test_without_extensions_the_commands_are_plain(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(extensions=()))
    assert classify(await send(provider(catcher.url))).accepted
    assert catcher.commands[1:3] == ["MAIL FROM:<news@news.example.com>", "RCPT TO:<ada@example.net>"]


async def test_own_helo_name(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    await send(provider(f"{catcher.url}?helo=mail.example.com"))
    assert catcher.commands[0] == "EHLO mail.example.com"


async def test_helo_without_a_name_is_a_full_one_or_an_address(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    await send(provider(catcher.url))
    assert re.fullmatch(r"EHLO (\[127\.0\.0\.1\]|[^.\s]+\.\S+)", catcher.commands[0])


# --- What we refuse ourselves, before a word is said about the mail.


@pytest.mark.parametrize(
    ("recipient", "body", "stage", "enhanced", "kind"),
    [
        ("jos\u00e9@example.net", b"", "rcpt", "5.6.7", "permanent_recipient"),
        ("a@example.net> SIZE=1", b"", "rcpt", None, "permanent_recipient"),
        ("a\r\nDATA@example.net", b"", "rcpt", None, "permanent_recipient"),
        ("half\ud83d@example.net", b"", "rcpt", None, "permanent_recipient"),
        ("ada@example.net", b"bare\nline feed\r\n", "data", "5.6.0", "permanent_batch"),
        ("ada@example.net", b"smuggled\n.\r\nMAIL FROM:<x@x>\r\n", "data", "5.6.0", "permanent_batch"),
        ("ada@example.net", b"bare\rreturn\r\n", "data", "5.6.0", "permanent_batch"),
        ("ada@example.net", b"eight bits \xe9\r\n", "data", "5.6.3", "permanent_batch"),
    ],
)
async def test_unfit(
    relay: MakeRelay, provider: MakeProvider, recipient: str, body: bytes, stage: str, enhanced: str | None, kind: str
):
    catcher = await relay(manners=Manners(extensions=()))
    permit = Permit()
    sender = provider(catcher.url)
    reply = await sender.send(envelope(recipient, body), permit)
    assert (reply.stage, reply.enhanced, classify(reply).kind) == (stage, enhanced, kind)
    assert not classify(reply).suppress
    assert permit.asked == 0
    assert classify(await send(sender)).accepted
    assert (catcher.accepted, catcher.connections) == (1, 1)


async def test_addresses_beyond_ascii_go_where_they_are_taken(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    assert classify(await send(provider(catcher.url), "jos\u00e9@example.net")).accepted
    assert catcher.mails[0].recipient == "jos\u00e9@example.net"
    assert "SMTPUTF8" in catcher.commands[1]


# --- Lost connections, step by step.


@pytest.mark.parametrize("step", ["greeting", "ehlo"])
async def test_dropped_before_the_session_began(relay: MakeRelay, provider: MakeProvider, step: str):
    catcher = await relay(manners=Manners(drops=only(step)))
    permit = Permit()
    with pytest.raises(NotBegun) as refusal:
        await provider(catcher.url).send(envelope(), permit)
    assert (refusal.value.reply.stage, refusal.value.reply.code) == ({"greeting": "connect"}.get(step, step), None)
    assert classify(refusal.value.reply).kind == "retry"
    assert permit.asked == 0


@pytest.mark.parametrize("step", ["mail", "rcpt", "data"])
async def test_dropped_before_the_body(relay: MakeRelay, provider: MakeProvider, step: str):
    catcher = await relay(manners=lambda n: Manners(drops=only(step)) if n == 1 else Manners())
    sender = provider(catcher.url)
    reply = await send(sender)
    assert (reply.stage, reply.code, classify(reply).kind) == (step, None, "retry")
    assert classify(await send(sender)).accepted
    assert catcher.accepted == 1


LARGE = b"large enough to be on its way\r\n" * 200_000


@pytest.mark.parametrize(
    ("body", "after", "stages"),
    [
        (b"small\r\n", 0, {"data"}),
        (LARGE, 0, {"data"}),
        (LARGE, 10_000, {"data"}),
        # The whole small body and its dot may be written before the relay has read the first byte.
        (b"small\r\n", 1, {"data", "eod"}),
    ],
    ids=["small-at-once", "large-at-once", "large-in-mid-body", "small-in-mid-body"],
)
async def test_dropped_in_mid_body(relay: MakeRelay, provider: MakeProvider, body: bytes, after: int, stages: set[str]):
    catcher = await relay(lambda _: Cut("body", after=after, times=1))
    sender = provider(catcher.url)
    reply = await send(sender, body=body)
    assert reply.code is None
    assert reply.stage in stages
    assert catcher.accepted == 0
    assert classify(await send(sender, body=body)).accepted


async def test_dropped_after_the_dot_is_unknown(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(lambda _: Cut("dot", times=1))
    sender = provider(catcher.url)
    reply = await send(sender)
    assert (reply.stage, reply.code, classify(reply).kind) == ("eod", None, "unknown")
    assert catcher.accepted == 1
    assert classify(await send(sender)).accepted
    assert set(catcher.copies.values()) == {2}


async def test_dropped_after_the_250_is_taken_and_costs_the_next_nothing(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(leaves=only("dot")))
    sender = provider(catcher.url)
    for number in range(5):
        assert classify(await send(sender, f"r{number}@example.net")).accepted
    assert (catcher.accepted, catcher.connections) == (5, 5)


async def test_refused_in_mid_body(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(adds={"data": "552 5.3.4 Message too big for this system"}))
    reply = await send(provider(catcher.url))
    assert (reply.stage, reply.code, classify(reply).kind) == ("data", 552, "permanent_batch")
    assert catcher.accepted == 0


async def test_421_in_mid_body(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=lambda n: Manners(adds={"data": "421 4.3.2 Shutting down"}) if n == 1 else Manners())
    sender = provider(catcher.url)
    reply = await send(sender)
    assert (reply.stage, reply.code, classify(reply).kind) == ("data", 421, "retry")
    assert classify(await send(sender)).accepted
    assert (catcher.accepted, catcher.connections) == (1, 2)


@pytest.mark.parametrize("step", ["mail", "rcpt", "data", "dot"])
async def test_421_as_a_reply(relay: MakeRelay, provider: MakeProvider, step: str):
    says = {step: "421 4.3.2 Service shutting down"}
    catcher = await relay(manners=lambda n: Manners(says=says) if n == 1 else Manners())
    sender = provider(catcher.url)
    reply = await send(sender)
    assert (reply.stage, reply.code) == ("eod" if step == "dot" else step, 421)
    assert classify(reply).kind == "retry"
    assert classify(await send(sender)).accepted
    assert catcher.connections == 2


# --- Relays out of step.


@pytest.mark.parametrize(
    ("manners", "stage"),
    [
        (Manners(adds={"mail": "250 2.1.0 Ok"}), "rcpt"),
        (Manners(says={"rcpt": "354 Go ahead"}), "rcpt"),
        (Manners(says={"data": "250 2.0.0 Ok"}), "data"),
        (Manners(adds={"data": "250 2.0.0 Ok: queued as nothing"}), "data"),
        (Manners(says={"rcpt": "25O Ok"}), "rcpt"),
        (Manners(says={"rcpt": "250-" + "x" * 9000}), "rcpt"),
        (Manners(says={"rcpt": "\r\n".join(["250-more"] * 9000)}), "rcpt"),
        (Manners(says={"dot": "garbage"}), "eod"),
        (Manners(says={"dot": "354 Go on"}), "eod"),
    ],
)
async def test_what_makes_no_sense_is_never_taken_for_a_yes(
    relay: MakeRelay, provider: MakeProvider, manners: Manners, stage: str
):
    catcher = await relay(manners=lambda n: manners if n == 1 else Manners())
    sender = provider(catcher.url)
    reply = await send(sender)
    assert reply.stage == stage
    assert classify(reply).kind == ("unknown" if stage == "eod" else "retry")
    assert classify(await send(sender)).accepted


# --- Sessions at rest.


@pytest.mark.parametrize("goodbye", ["", "421 4.4.2 Idle too long"])
async def test_an_idle_session_that_was_closed_costs_nothing(relay: MakeRelay, provider: MakeProvider, goodbye: str):
    catcher = await relay()
    sender = provider(catcher.url)
    assert classify(await send(sender)).accepted
    (session,) = catcher.sessions
    if goodbye:
        session.say(goodbye)
    session.hang_up()
    permit = Permit()
    assert classify(await sender.send(envelope(), permit)).accepted
    assert (catcher.accepted, catcher.connections) == (2, 2)
    assert permit.asked in {1, 2}


@pytest.mark.parametrize("goodbye", ["421 4.7.0 Enough mails for one session", "451 4.4.2 Timeout waiting for data"])
async def test_a_session_that_ends_at_its_next_mail_costs_nothing(
    relay: MakeRelay, provider: MakeProvider, goodbye: str
):
    catcher = await relay()
    sender = provider(catcher.url)
    assert classify(await send(sender)).accepted
    (session,) = catcher.sessions
    session.manners = Manners(says={"mail": goodbye})
    permit = Permit()
    assert classify(await sender.send(envelope(), permit)).accepted
    assert (catcher.accepted, catcher.connections, permit.asked) == (2, 2, 2)


async def test_the_same_goodbye_on_a_new_session_is_the_answer(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(says={"mail": "421 4.7.0 Not today"}))
    reply = await send(provider(catcher.url))
    assert (reply.stage, reply.code) == ("mail", 421)
    assert catcher.connections == 1


async def test_a_rest_is_followed_by_a_sign_of_life(
    relay: MakeRelay, provider: MakeProvider, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postledger.workers.providers.smtp_session._FRESH_FOR", 0.0)
    catcher = await relay()
    sender = provider(catcher.url)
    await send(sender)
    (session,) = catcher.sessions
    session.manners = Manners(says={"rset": "451 4.4.2 Timeout waiting for data"})
    permit = Permit()
    assert classify(await sender.send(envelope(), permit)).accepted
    assert (catcher.connections, permit.asked) == (2, 1)


async def test_sessions_at_rest_say_goodbye(relay: MakeRelay, provider: MakeProvider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(smtp_pool, "IDLE_SECONDS", 0.05)
    catcher = await relay()
    await send(provider(catcher.url))

    def gone() -> None:
        assert not catcher.sessions

    await eventually(gone)
    assert catcher.commands[-1] == "QUIT"


async def test_a_worn_session_is_replaced(relay: MakeRelay, provider: MakeProvider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(smtp_pool, "MAILS_PER_SESSION", 3)
    catcher = await relay()
    sender = provider(catcher.url)
    for _ in range(7):
        assert classify(await send(sender)).accepted
    assert catcher.connections == 3


# --- Slow relays.


async def test_a_relay_that_never_greets(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(waits={"greeting": 30}))
    with pytest.raises(NotBegun) as refusal:
        await send(provider(f"{catcher.url}?timeout=0.4"))
    assert (refusal.value.reply.stage, refusal.value.reply.code) == ("connect", None)


@pytest.mark.parametrize("step", ["mail", "rcpt", "data"])
async def test_a_late_reply_before_the_dot(relay: MakeRelay, provider: MakeProvider, step: str):
    catcher = await relay(manners=lambda n: Manners(waits={step: 30}) if n == 1 else Manners())
    sender = provider(f"{catcher.url}?timeout=0.6")
    reply = await send(sender)
    assert (reply.stage, reply.code, classify(reply).kind) == (step, None, "retry")
    assert classify(await send(sender)).accepted
    assert catcher.accepted == 1


async def test_a_late_reply_after_the_dot_is_unknown(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(lambda _: Slow(timedelta(seconds=30), times=1))
    sender = provider(f"{catcher.url}?timeout=0.4")
    reply = await send(sender)
    assert (reply.stage, reply.code, classify(reply).kind) == ("eod", None, "unknown")
    assert catcher.accepted == 1
    assert classify(await send(sender)).accepted


async def test_slow_is_not_lost(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(lambda _: Slow(timedelta(seconds=0.3)), Manners(waits={"mail": 0.1, "rcpt": 0.1}))
    assert classify(await send(provider(catcher.url))).accepted


async def test_a_relay_that_stops_reading(provider: MakeProvider):
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 deaf\r\n")
        for answer in (b"250 deaf\r\n", b"250 Ok\r\n", b"250 Ok\r\n", b"354 Go ahead\r\n"):
            await reader.readline()
            writer.write(answer)
        await writer.drain()
        await released.wait()
        writer.close()

    released = asyncio.Event()
    server = await asyncio.start_server(deaf, "127.0.0.1", 0, limit=1024)
    port = server.sockets[0].getsockname()[1]
    reply = await send(provider(f"smtp://127.0.0.1:{port}?timeout=1"), body=b"never read\r\n" * 2_000_000)
    released.set()
    server.close()
    assert (reply.stage, reply.code) == ("data", None)


# --- The permit.


async def test_withheld_says_nothing_and_keeps_the_session(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    sender = provider(catcher.url)
    with pytest.raises(Withheld, match="paused"):
        await sender.send(envelope(), Permit(reason="paused"))
    assert len(catcher.commands) == 1, "EHLO alone"
    assert classify(await send(sender)).accepted
    assert catcher.connections == 1


async def test_the_permit_is_asked_when_the_session_is_ready(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    seen: list[list[str]] = []

    async def begin() -> None:
        seen.append([command.split()[0] for command in catcher.commands])

    await provider(catcher.url).send(envelope(), begin)
    assert seen == [["EHLO"]]


# --- Cancellation.


@pytest.mark.parametrize("step", ["greeting", "ehlo", "mail", "rcpt", "data"])
async def test_cancelled_before_the_dot(relay: MakeRelay, provider: MakeProvider, step: str):
    catcher = await relay(manners=lambda n: Manners(waits={step: 30}) if n == 1 else Manners())
    sender = provider(catcher.url)
    sending = asyncio.create_task(send(sender))

    def waiting() -> None:
        assert [session for session in catcher.sessions if session.step == step]

    await eventually(waiting)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert classify(await send(sender)).accepted
    assert catcher.accepted == 1


async def test_cancelled_in_the_permit(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    sender = provider(catcher.url)
    asked = asyncio.Event()

    async def begin() -> None:
        asked.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(sender.send(envelope(), begin))
    await asked.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert classify(await send(sender)).accepted
    assert catcher.connections == 1


async def test_cancelled_after_the_dot_tells_the_truth(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(lambda _: Slow(timedelta(seconds=0.3)))
    sending = asyncio.create_task(send(provider(catcher.url)))
    await eventually(lambda: _kept(catcher))
    sending.cancel()
    reply = await sending
    assert classify(reply).accepted
    assert sending.cancelling() == 1, "who asked can still see it"


async def test_cancelled_twice_after_the_dot_is_unknown(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(lambda _: Slow(timedelta(seconds=30), times=1))
    sender = provider(catcher.url)
    sending = asyncio.create_task(send(sender))
    await eventually(lambda: _kept(catcher))
    sending.cancel()
    await asyncio.sleep(0)
    sending.cancel()
    reply = await sending
    assert (reply.stage, reply.code, classify(reply).kind) == ("eod", None, "unknown")
    assert classify(await send(sender)).accepted


def _kept(catcher) -> None:
    assert catcher.accepted == 1


# --- Many at once.


async def test_fifty_tasks_over_a_small_pool(relay: MakeRelay, provider: MakeProvider):
    def behaviour(recipient: str) -> Behaviour:
        number = int(recipient[1:].partition("@")[0])
        if number % 3 == 0:
            return Answer("rcpt", 550, f"5.1.1 no number {number} here")
        if number % 7 == 0:
            return Answer("eod", 451, f"4.3.0 number {number} later")
        return Accept()

    catcher = await relay(behaviour)
    sender = provider(catcher.url, concurrency=4)
    replies = await asyncio.gather(*(send(sender, f"r{number}@example.net") for number in range(200)))
    for number, reply in enumerate(replies):
        if number % 3 == 0:
            assert reply.text == f"550 5.1.1 no number {number} here"
        elif number % 7 == 0:
            assert reply.text == f"451 4.3.0 number {number} later"
        else:
            assert classify(reply).accepted
    assert catcher.connections <= 4 + 200 // smtp_pool.REFUSALS_PER_SESSION
    assert catcher.out_of_step == 0
    assert set(catcher.copies.values()) == {1}


async def test_no_more_sessions_than_the_relay_lets_in(relay: MakeRelay, provider: MakeProvider):
    crowded = Manners(says={"greeting": "421 4.7.0 Too many concurrent connections"})
    catcher = await relay(manners=lambda n: Manners(waits={"rcpt": 0.01}) if n <= 3 else crowded)
    sender = provider(catcher.url, concurrency=10)
    first = await send(sender)
    replies = await asyncio.gather(*(send(sender, f"r{number}@example.net") for number in range(60)))
    assert all(classify(reply).accepted for reply in [first, *replies])
    assert catcher.connections < 20, "it does not knock again and again"


async def test_a_crowded_relay_is_asked_again_later(
    relay: MakeRelay, provider: MakeProvider, monkeypatch: pytest.MonkeyPatch
):
    """The one session that was let in may be busy for ten minutes."""
    monkeypatch.setattr(smtp_pool, "RELIEF_SECONDS", 0.2)
    crowded = Manners(says={"greeting": "421 4.7.0 Too many concurrent connections"})

    def behaviour(recipient: str) -> Behaviour:
        return Slow(timedelta(seconds=30)) if recipient.startswith("slow") else Accept()

    catcher = await relay(behaviour, lambda n: crowded if n == 2 else Manners())
    sender = provider(catcher.url)
    slow = asyncio.create_task(send(sender, "slow@example.net"))
    await eventually(lambda: _kept(catcher))
    assert classify(await send(sender)).accepted
    assert catcher.connections == 3
    slow.cancel()
    await asyncio.sleep(0)
    slow.cancel()
    assert classify(await slow).kind == "unknown"


async def test_a_dead_relay_is_told_to_everybody_at_once(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    sender = provider(catcher.url, concurrency=2)
    await send(sender)
    await catcher.stop()
    outcomes = await asyncio.gather(*(send(sender) for _ in range(20)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {NotBegun}
    assert all(outcome.reply.stage == "connect" for outcome in outcomes)


async def test_a_relay_that_comes_back_is_used_again(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    sender = provider(catcher.url, concurrency=2)
    assert classify(await send(sender)).accepted
    await catcher.stop()
    with pytest.raises(NotBegun):
        await send(sender)
    await catcher.start(port=catcher.port)
    assert classify(await send(sender)).accepted
