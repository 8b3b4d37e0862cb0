"""TLS and login, against a server that is not ours, and what a user is told where they fail."""

import pytest

from postledger.errors import ConfigurationError, UnavailableError
from postledger.workers.providers.base import NotBegun
from postledger.workers.replies import classify
from tests.workers.providers.conftest import MakeProvider, MakeRelay
from tests.workers.providers.mails import HEAD, send
from tests.workers.providers.relays import AUTHORITY, Manners, stranger

TRUSTED = f"ca={AUTHORITY}"
pytestmark = pytest.mark.filterwarnings("ignore:Requiring AUTH while not requiring TLS")


async def test_clear_text_to_a_stranger(provider: MakeProvider):
    body = b".\r\n..\r\n.x\r\n"
    async with stranger() as taken:
        assert classify(await send(provider(f"smtp://127.0.0.1:{taken.port}"), body=body)).accepted
    assert taken.mails == [("ada@example.net", HEAD + body)]
    assert taken.encrypted == [False]


async def test_starttls(provider: MakeProvider):
    async with stranger(starttls=True) as taken:
        sender = provider(f"smtp://127.0.0.1:{taken.port}?starttls=required&{TRUSTED}")
        await sender.open()
        body = b"long enough for many records\r\n" * 50_000
        for number in range(3):
            assert classify(await send(sender, f"r{number}@example.net", body)).accepted
        await sender.close()
    assert [content for _, content in taken.mails] == [HEAD + body] * 3
    assert taken.encrypted == [True] * 3


async def test_implicit_tls(provider: MakeProvider):
    async with stranger(implicit_tls=True) as taken:
        sender = provider(f"smtps://localhost:{taken.port}?{TRUSTED}")
        assert classify(await send(sender)).accepted
        await sender.close()
    assert taken.encrypted == [True]


@pytest.mark.parametrize("scheme", ["smtp", "smtps"])
async def test_a_certificate_of_nobody_is_refused(provider: MakeProvider, scheme: str):
    async with stranger(implicit_tls=scheme == "smtps", starttls=scheme == "smtp") as taken:
        sender = provider(f"{scheme}://127.0.0.1:{taken.port}" + ("?starttls=required" if scheme == "smtp" else ""))
        with pytest.raises(NotBegun, match="certificate of the relay is not good") as refusal:
            await send(sender)
        assert classify(refusal.value.reply).kind == "permanent_batch"
        with pytest.raises(ConfigurationError, match=r"certificate.*\?ca=FILE.*\?verify=no"):
            await sender.open()
    assert taken.mails == []


async def test_a_certificate_for_another_name_is_refused(provider: MakeProvider):
    async with stranger(host="0.0.0.0", implicit_tls=True) as taken:
        with pytest.raises(NotBegun, match="certificate of the relay is not good"):
            await send(provider(f"smtps://127.0.0.2:{taken.port}?{TRUSTED}"))


async def test_verify_no(provider: MakeProvider):
    async with stranger(starttls=True) as taken:
        sender = provider(f"smtp://127.0.0.1:{taken.port}?starttls=required&verify=no")
        assert classify(await send(sender)).accepted
        await sender.close()
    assert taken.encrypted == [True]


async def test_starttls_required_but_not_offered(provider: MakeProvider):
    async with stranger() as taken:
        sender = provider(f"smtp://127.0.0.1:{taken.port}?starttls=required")
        with pytest.raises(NotBegun, match="STARTTLS is required, but the relay does not offer it") as refusal:
            await send(sender)
    assert classify(refusal.value.reply).kind == "permanent_batch"
    assert taken.mails == []


async def test_optional_starttls_is_used_beyond_loopback(provider: MakeProvider):
    async with stranger(starttls=True) as taken:
        sender = provider(f"smtp://0.0.0.0:{taken.port}?starttls=optional&{TRUSTED}")
        assert classify(await send(sender)).accepted
        await sender.close()
    assert taken.encrypted == [True]


async def test_optional_starttls_never_falls_back_to_clear_text(provider: MakeProvider):
    async with stranger(starttls=True) as taken:
        with pytest.raises(NotBegun, match="certificate"):
            await send(provider(f"smtp://0.0.0.0:{taken.port}?starttls=optional"))


async def test_starttls_that_is_refused(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay(manners=Manners(extensions=("STARTTLS",), says={"star": "454 4.7.0 TLS not available"}))
    with pytest.raises(NotBegun) as refusal:
        await send(provider(f"{catcher.url}?starttls=required"))
    assert (refusal.value.reply.stage, refusal.value.reply.code) == ("ehlo", 454)


@pytest.mark.parametrize(("without", "mechanism"), [(("LOGIN",), "PLAIN"), (("PLAIN",), "LOGIN")])
async def test_login(provider: MakeProvider, without: tuple[str, ...], mechanism: str):
    async with stranger(starttls=True, auth=True, without=without) as taken:
        sender = provider(f"smtp://ada:l0velace@localhost:{taken.port}?{TRUSTED}")
        await sender.open()
        assert classify(await send(sender)).accepted
        await sender.close()
    assert taken.logins == [mechanism]
    assert taken.encrypted == [True]


async def test_password_from_the_environment(provider: MakeProvider, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RELAY_PASSWORD", "l0velace")
    async with stranger(auth=True) as taken:
        sender = provider(f"smtp://ada:env:RELAY_PASSWORD@127.0.0.1:{taken.port}?starttls=off")
        assert classify(await send(sender)).accepted
    assert taken.logins == ["PLAIN"]


async def test_a_wrong_password_is_told_without_being_shown(provider: MakeProvider):
    async with stranger(auth=True) as taken:
        sender = provider(f"smtp://ada:l0velasse@127.0.0.1:{taken.port}?starttls=off")
        with pytest.raises(NotBegun) as refusal:
            await send(sender)
        assert (refusal.value.reply.stage, refusal.value.reply.code) == ("auth", 535)
        with pytest.raises(ConfigurationError, match=rf"127.0.0.1:{taken.port} refused the login: 535") as told:
            await sender.open()
    assert "l0velasse" not in str(told.value) + repr(told.value.__cause__)
    assert taken.mails == []


async def test_no_password_over_clear_text(provider: MakeProvider):
    async with stranger(auth=True) as taken:
        with pytest.raises(NotBegun, match="no password goes over clear text") as refusal:
            await send(provider(f"smtp://ada:l0velace@0.0.0.0:{taken.port}?starttls=optional"))
        assert classify(refusal.value.reply).kind == "permanent_batch"
        assert taken.logins == []
        meant = provider(f"smtp://ada:l0velace@0.0.0.0:{taken.port}?insecure_auth=1")
        assert classify(await send(meant)).accepted


async def test_credentials_make_starttls_required(provider: MakeProvider):
    async with stranger(auth=True) as taken:
        with pytest.raises(NotBegun, match="STARTTLS is required"):
            await send(provider(f"smtp://ada:l0velace@127.0.0.1:{taken.port}"))
    assert taken.logins == []


async def test_a_relay_without_auth(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    with pytest.raises(NotBegun, match="does not offer AUTH") as refusal:
        await send(provider(f"smtp://ada:l0velace@127.0.0.1:{catcher.port}?starttls=off"))
    assert classify(refusal.value.reply).kind == "permanent_batch"


async def test_open_tells_who_cannot_be_reached(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    await catcher.stop()
    with pytest.raises(UnavailableError, match=rf"127.0.0.1:{catcher.port} cannot be reached: connection refused"):
        await provider(catcher.url).open()


async def test_open_tells_of_a_name_without_address(provider: MakeProvider):
    with pytest.raises(UnavailableError, match=r"relay.invalid:25 cannot be reached: its name has no address"):
        await provider("smtp://relay.invalid").open()


async def test_open_keeps_its_session_for_the_first_mail(relay: MakeRelay, provider: MakeProvider):
    catcher = await relay()
    sender = provider(catcher.url)
    await sender.open()
    assert classify(await send(sender)).accepted
    assert catcher.connections == 1


async def test_open_tells_a_refusal_of_many_lines_in_one(relay: MakeRelay, provider: MakeProvider):
    banner = "554-mx.example.net\r\n554 5.7.1 No service for you"
    catcher = await relay(manners=Manners(says={"greeting": banner}))
    with pytest.raises(ConfigurationError, match="No service for you") as told:
        await provider(catcher.url).open()
    assert "\n" not in str(told.value)
