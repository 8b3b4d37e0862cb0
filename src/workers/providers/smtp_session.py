"""One SMTP session with one relay: mails through it, one after the other, each with one recipient."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Self

from attrs import define, field, frozen

from ..reply import Reply, Stage
from .base import Envelope
from .outlast import GRACE, outlast
from .smtp_wire import Answer, Lost, Wire

_BLOCK = 256 * 1024
_FRESH_FOR = 1.0
"""Seconds for which an unused session is believed to be alive without asking."""
_BYE_WITHIN = 2.0
_UNFIT_ADDRESS = re.compile(r"[\x00-\x20\x7f<>\ud800-\udfff]")
_NOT_XTEXT = re.compile(r"[^!-*,-<>-~]")


@frozen
class Timeouts:
    """Seconds per step: the minimum of RFC 5321 4.5.3.2; a shorter wait at the dot makes duplicates."""

    greeting: float = 300.0
    command: float = 300.0
    data: float = 120.0
    block: float = 180.0
    dot: float = 600.0

    @classmethod
    def scaled(cls, dot: float) -> Self:
        """All of them in proportion to a given wait at the final dot."""
        factor = dot / 600.0
        return cls(300.0 * factor, 300.0 * factor, 120.0 * factor, 180.0 * factor, dot)


@define(eq=False)
class SmtpSession:
    """A relay that greeted us and let us in. Serial: whoever has it has it alone until it is given back."""

    wire: Wire
    extensions: Mapping[str, str]
    timeouts: Timeouts
    carried: int = 0
    """Mails for which this session was used, whatever became of them."""
    refused_in_a_row: int = 0
    rested: bool = False
    """Whether it has been given back before: then the relay may have left it meanwhile."""
    _open_transaction: bool = False
    _used_at: float = field(factory=lambda: asyncio.get_running_loop().time())

    @property
    def broken(self) -> bool:
        return bool(self.wire.lost)

    @property
    def idle_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._used_at

    async def is_ready(self) -> bool:
        """Whether a mail can go through it now; after a refusal or a rest RSET clears and proves it."""
        if not self.wire.quiet:
            return False
        if not self._open_transaction and self.idle_seconds < _FRESH_FOR:
            return True
        try:
            answer = await self.wire.ask(b"RSET", self.timeouts.command)
        except Lost:
            return False
        self._open_transaction = False
        return answer.code == 250

    def unfit(self, envelope: Envelope) -> Reply | None:
        """Our own refusal of what this relay cannot be asked to carry, before a word is said about it."""
        content = envelope.content
        named: tuple[tuple[Stage, str], ...] = ("mail", envelope.sender), ("rcpt", envelope.recipient)
        for stage, address in named:
            if _UNFIT_ADDRESS.search(address):
                return _ours(stage, 553, None, "not an address that SMTP can name")
            if not address.isascii() and "smtputf8" not in self.extensions:
                return _ours(stage, 553, "5.6.7", "the address needs SMTPUTF8, which the relay does not offer")
        # A bare CR or LF may end the mail at the next hop and begin another one there.
        if not content.count(b"\r\n") == content.count(b"\r") == content.count(b"\n"):
            return _ours("data", 554, "5.6.0", "the message has a bare CR or LF")
        if not content.isascii() and "8bitmime" not in self.extensions:
            return _ours("data", 554, "5.6.3", "the message has 8-bit text, and the relay takes none")
        return None

    async def deliver(self, envelope: Envelope) -> Reply:
        """One transaction. Raises nothing but a cancellation, and that only while the dot is not written."""
        self.carried += 1
        self._open_transaction = True
        try:
            return await self._transact(envelope)
        except BaseException:
            self.abort()
            raise
        finally:
            self._used_at = asyncio.get_running_loop().time()

    def went_stale(self, reply: Reply) -> bool:
        """Whether the relay had given up this session before the mail that got `reply` began."""
        return (
            self.rested
            and reply.stage == "mail"
            and (reply.code in (None, 421) or reply.enhanced in ("4.4.2", "5.4.2"))
        )

    async def quit(self) -> None:
        try:
            with suppress(Lost):
                await self.wire.ask(b"QUIT", _BYE_WITHIN)
        finally:
            self.wire.close()

    def abort(self) -> None:
        self.wire.abort()

    async def _transact(self, envelope: Envelope) -> Reply:
        stage: Stage = "mail"
        try:
            for stage, command, within in self._commands(envelope):
                answer = await self.wire.ask(command, within)
                if answer.code // 100 != (3 if stage == "data" else 2):
                    return self._refused(stage, answer)
            await self._write_body(envelope.content)
            if not self.wire.quiet:
                return self._refused("data", self.wire.early())
            self.wire.write(b".\r\n")
        except Lost as lost:
            return Reply.lost(stage, str(lost))
        return await self._after_dot()

    def _commands(self, envelope: Envelope) -> Iterator[tuple[Stage, bytes, float]]:
        yield "mail", self._mail(envelope), self.timeouts.command
        yield "rcpt", self._rcpt(envelope), self.timeouts.command
        yield "data", b"DATA", self.timeouts.data

    def _mail(self, envelope: Envelope) -> bytes:
        words = [f"MAIL FROM:<{envelope.sender}>"]
        if "size" in self.extensions:
            words.append(f"SIZE={len(envelope.content)}")
        if not envelope.content.isascii():
            words.append("BODY=8BITMIME")
        if not (envelope.sender.isascii() and envelope.recipient.isascii()):
            words.append("SMTPUTF8")
        if "dsn" in self.extensions:
            words.append(f"RET=HDRS ENVID={_xtext(envelope.delivery)}")
        return " ".join(words).encode()

    def _rcpt(self, envelope: Envelope) -> bytes:
        notify = " NOTIFY=FAILURE,DELAY" if "dsn" in self.extensions else ""
        return f"RCPT TO:<{envelope.recipient}>{notify}".encode()

    async def _write_body(self, content: bytes) -> None:
        """All of it but the dot, and a look at what the peer did meanwhile."""
        body = memoryview(_stuffed(content))
        for start in range(0, len(body), _BLOCK):
            self.wire.write(body[start : start + _BLOCK])
            await self.wire.flush(self.timeouts.block)
        # The loop reads sockets once per turn: what has arrived by now is known after the second.
        for _ in range(3):
            await asyncio.sleep(0)

    async def _after_dot(self) -> Reply:
        """From here on a missing answer is an unknown outcome, for the relay may have the whole mail."""
        coming = self.wire.expect()
        if not await outlast(coming, self.timeouts.dot, GRACE):
            self.abort()
            return Reply.lost("eod", "no reply after the final dot")
        if (lost := coming.exception()) is not None:
            return Reply.lost("eod", f"{lost} after the final dot")
        self._open_transaction = False
        answer = coming.result()
        if answer.code // 100 != 2:
            return self._refused("eod", answer)
        self.refused_in_a_row = 0
        return Reply.parse("eod", answer.code, answer.text)

    def _refused(self, stage: Stage, answer: Answer) -> Reply:
        self.refused_in_a_row += 1
        out_of_step = answer.code < 400
        if answer.code == 421 or out_of_step:
            self.abort()
        if out_of_step:
            return Reply.lost(stage, f"out of step: {answer.text}")
        return Reply.parse(stage, answer.code, answer.text)


def _ours(stage: Stage, code: int, enhanced: str | None, why: str) -> Reply:
    return Reply(stage, code, enhanced, f"not sent: {why}")


def _stuffed(content: bytes) -> bytes:
    """The body as it travels: a dot at the start of a line doubled, the last line ended."""
    body = content.replace(b"\r\n.", b"\r\n..")
    if body.startswith(b"."):
        body = b"." + body
    return body if body.endswith(b"\r\n") or not body else body + b"\r\n"


def _xtext(text: str) -> str:
    """RFC 3461 4: printable ASCII as it is, '+', '=' and all else as +HH."""
    return _NOT_XTEXT.sub(lambda found: "".join(f"+{byte:02X}" for byte in found[0].encode()), text)
