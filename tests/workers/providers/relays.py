"""Relays for the tests: the catcher with bad manners, and aiosmtpd as the work of strangers."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, Session
from attrs import field, frozen

from postledger.demo.behaviours import Choice, accept
from postledger.demo.catcher import Catcher, CatcherSession
from postledger.demo.keepers import Caught

TLS = Path(__file__).parents[1] / "data" / "tls"
AUTHORITY = TLS / "authority.pem"


@frozen
class Manners:
    """How a session behaves at its steps: greeting, ehlo, mail, rcpt, data, rset, dot (the reply to it), quit.

    `drops` hangs up instead of replying, `says` replies otherwise (and hangs up after a 421), `adds` says one
    thing more in the same breath, `leaves` hangs up after the reply, `waits` replies that many seconds late.
    """

    drops: frozenset[str] = frozenset()
    leaves: frozenset[str] = frozenset()
    says: dict[str, str] = field(factory=dict)
    adds: dict[str, str] = field(factory=dict)
    waits: dict[str, float] = field(factory=dict)
    extensions: tuple[str, ...] = CatcherSession.extensions


class Relay(Catcher):
    """A catcher whose nth connection has the manners that `manners(n)` says."""

    def __init__(self, behaviour: Choice = accept, manners: Callable[[int], Manners] = lambda _: Manners()) -> None:
        super().__init__(behaviour, [self.note])
        self.manners = manners
        self.mails: list[Caught] = []
        self.commands: list[str] = []

    def note(self, caught: Caught) -> None:
        self.mails.append(caught)

    def session(self) -> CatcherSession:
        return RelaySession(self, self.manners(self.connections + 1))


class RelaySession(CatcherSession):
    def __init__(self, relay: Relay, manners: Manners) -> None:
        super().__init__(relay)
        self.relay = relay
        self.manners = manners
        self.extensions = manners.extensions
        self.step = "greeting"

    def obey(self, line: bytes) -> None:
        self.relay.commands.append(line.decode())
        self.step = line[:4].decode().lower()
        super().obey(line)

    def end_of_data(self, content: bytes) -> None:
        self.step = "dot"
        super().end_of_data(content)

    def say(self, line: str) -> None:
        step = self.step
        if wait := self.manners.waits.get(step):
            asyncio.get_running_loop().call_later(wait, self.say_now, step, line)
        else:
            self.say_now(step, line)

    def say_now(self, step: str, line: str) -> None:
        if self.transport.is_closing():
            return
        if step in self.manners.drops:
            self.hang_up()
            return
        said = self.manners.says.get(step, line)
        if step in self.manners.adds:
            said += "\r\n" + self.manners.adds[step]
        super().say(said)
        if step in self.manners.leaves or said.startswith("421"):
            self.hang_up()


def relay_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "relay.pem")
    return context


class Stranger:
    """aiosmtpd's view of what it was sent; user and password are ada and l0velace."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, bytes]] = []
        self.logins: list[str] = []
        self.encrypted: list[bool] = []
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:  # noqa: N802
        self.encrypted.append(session.ssl is not None or server.transport.get_extra_info("sslcontext") is not None)
        assert isinstance(envelope.content, bytes)
        self.mails.extend((recipient, envelope.content) for recipient in envelope.rcpt_tos)
        return "250 2.0.0 Ok: taken by a stranger"

    def authenticate(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any) -> AuthResult:
        self.logins.append(mechanism)
        return AuthResult(success=(data.login, data.password) == (b"ada", b"l0velace"), handled=False)


@asynccontextmanager
async def stranger(
    *,
    host: str = "127.0.0.1",
    implicit_tls: bool = False,
    starttls: bool = False,
    auth: bool = False,
    without: tuple[str, ...] = (),
) -> AsyncIterator[Stranger]:
    """An aiosmtpd on a free port; `without` names AUTH mechanisms that it does not offer."""
    taken = Stranger()
    tls = relay_tls()

    def session() -> SMTP:
        return SMTP(
            taken,
            hostname="stranger.example",
            tls_context=tls if starttls else None,
            require_starttls=starttls,
            auth_require_tls=False,
            auth_required=auth,
            authenticator=taken.authenticate if auth else None,
            auth_exclude_mechanism=without,
        )

    loop = asyncio.get_running_loop()
    server = await loop.create_server(session, host, 0, ssl=tls if implicit_tls else None)
    taken.port = server.sockets[0].getsockname()[1]
    try:
        yield taken
    finally:
        server.close()
        await server.wait_closed()
