"""An SMTP server that keeps what it is given and misbehaves where it is told to.

`python -m postledger.demo.catcher --port 2525 --log caught.jsonl` runs it as a process of its own.
"""

import argparse
import asyncio
import re
import signal
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self, cast

from .behaviours import Accept, Answer, Behaviour, Choice, Cut, Slow, accept, by_tag
from .keepers import Caught, Keeper, files_in, log_to

_PATH = re.compile(rb"[^<]*<([^>]*)>")
_LINE_LIMIT = 4096
_CONTENT_LIMIT = 64 * 1024 * 1024


class Catcher:
    """Listens, counts, and hands each accepted mail to its keepers before it says 250.

    `copies` counts by (recipient, message id); without `counting` a run needs no memory that grows with it.
    """

    def __init__(self, behaviour: Choice = accept, keepers: Iterable[Keeper] = (), *, counting: bool = True) -> None:
        self.behaviour = behaviour
        self.keepers = tuple(keepers)
        self.counting = counting
        self.accepted = 0
        self.connections = 0
        self.out_of_step = 0
        """Commands that were answered 503: a client that lost track of its session."""
        self.copies: Counter[tuple[str, str]] = Counter()
        self.sessions: set[CatcherSession] = set()
        self.port = 0
        self._attempts: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> Self:
        self._server = await asyncio.get_running_loop().create_server(self.session, host, port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for session in list(self.sessions):
                session.hang_up()
            await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        return await self.start(port=self.port)

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def session(self) -> "CatcherSession":
        """The next connection's protocol; tests that need a relay with other manners make another one."""
        return CatcherSession(self)

    def treat(self, recipient: str) -> Behaviour:
        """What this attempt meets; one with `times` is met so often and then no more."""
        behaviour = self.behaviour(recipient)
        if behaviour.times is None:
            return behaviour
        self._attempts[recipient] += 1
        return behaviour if self._attempts[recipient] <= behaviour.times else Accept()

    def keep(self, sender: str, recipients: Iterable[str], content: bytes) -> None:
        for recipient in recipients:
            caught = Caught.read(sender, recipient, content)
            for keeper in self.keepers:
                keeper(caught)
            self.accepted += 1
            if self.counting:
                self.copies[recipient, caught.message_id] += 1


class CatcherSession(asyncio.Protocol):
    """One connection. Commands are methods named after them; pipelined ones are answered in order."""

    greeting = "220 catcher.example ESMTP"
    extensions: tuple[str, ...] = ("PIPELINING", f"SIZE {_CONTENT_LIMIT}", "8BITMIME", "SMTPUTF8", "DSN")

    def __init__(self, catcher: Catcher) -> None:
        self.catcher = catcher
        self.transport: asyncio.Transport
        self.buffer = bytearray()
        self.sender: str | None = None
        self.recipients: list[str] = []
        self.behaviour: Behaviour = Accept()
        self.in_body = False
        self.is_held = False
        self._scanned = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.catcher.connections += 1
        self.catcher.sessions.add(self)
        self.say(self.greeting)

    def connection_lost(self, exc: Exception | None) -> None:
        self.catcher.sessions.discard(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self.work()

    def work(self) -> None:
        while not self.is_held and not self.transport.is_closing():
            if not (self.read_body() if self.in_body else self.read_command()):
                return

    def say(self, line: str) -> None:
        self.transport.write(line.encode() + b"\r\n")

    def hang_up(self) -> None:
        """At once: what arrives later is answered by a reset."""
        self.transport.close()

    def read_command(self) -> bool:
        end = self.buffer.find(b"\r\n")
        if end < 0:
            if len(self.buffer) > _LINE_LIMIT:
                self.say("500 5.5.2 Line too long")
                self.hang_up()
            return False
        line = bytes(self.buffer[:end])
        del self.buffer[: end + 2]
        self.obey(line)
        return True

    def obey(self, line: bytes) -> None:
        verb = line[:4].decode("ascii", "replace").lower()
        match verb:
            case "ehlo" | "helo" | "mail" | "rcpt" | "data" | "rset" | "noop" | "quit":
                getattr(self, verb)(line)
            case _:
                self.say("502 5.5.1 Command not known")

    def ehlo(self, line: bytes) -> None:
        del line
        *names, last = "catcher.example", *self.extensions
        self.say("".join(f"250-{name}\r\n" for name in names) + f"250 {last}")

    def helo(self, line: bytes) -> None:
        del line
        self.say("250 catcher.example")

    def mail(self, line: bytes) -> None:
        found = _PATH.match(line)
        if self.sender is not None:
            self.refuse_step("nested MAIL command")
        elif found is None:
            self.say("501 5.1.7 Bad sender address syntax")
        else:
            self.sender = found[1].decode("utf-8", "replace")
            self.say("250 2.1.0 Ok")

    def rcpt(self, line: bytes) -> None:
        found = _PATH.match(line)
        if self.sender is None:
            self.refuse_step("need MAIL command")
        elif found is None:
            self.say("501 5.1.3 Bad recipient address syntax")
        else:
            recipient = found[1].decode("utf-8", "replace")
            self.behaviour = self.catcher.treat(recipient)
            if not self.refuses("rcpt"):
                self.recipients.append(recipient)
                self.say("250 2.1.5 Ok")

    def data(self, line: bytes) -> None:
        del line
        if not self.recipients:
            self.refuse_step("need RCPT command")
        elif not self.refuses("data"):
            self.in_body = True
            self._scanned = 0
            # The end of the line before the body, so that a body of nothing but the dot ends like any other.
            self.buffer[:0] = b"\r\n"
            self.say("354 End data with <CR><LF>.<CR><LF>")
            if self.cuts_body_at(0):
                # So the end of the stream is in the client's hands before it can have written its dot.
                self.transport.write_eof()
                self.hang_up()

    def rset(self, line: bytes) -> None:
        del line
        self.forget()
        self.say("250 2.0.0 Ok")

    def noop(self, line: bytes) -> None:
        del line
        self.say("250 2.0.0 Ok")

    def quit(self, line: bytes) -> None:
        del line
        self.say("221 2.0.0 Bye")
        self.hang_up()

    def refuse_step(self, why: str) -> None:
        self.catcher.out_of_step += 1
        self.say(f"503 5.5.1 {why}")

    def refuses(self, stage: str) -> bool:
        """Whether the recipient's behaviour is a reply at this stage, which is then given."""
        if not (isinstance(self.behaviour, Answer) and self.behaviour.stage == stage):
            return False
        self.say(f"{self.behaviour.code} {self.behaviour.text}")
        return True

    def cuts_body_at(self, length: int) -> bool:
        return isinstance(self.behaviour, Cut) and self.behaviour.at == "body" and self.behaviour.after <= length

    def read_body(self) -> bool:
        end = self.buffer.find(b"\r\n.\r\n", self._scanned)
        if self.cuts_body_at(len(self.buffer) - 2) or len(self.buffer) > _CONTENT_LIMIT:
            self.hang_up()
        elif end < 0:
            self._scanned = max(0, len(self.buffer) - 4)
        else:
            content = bytes(self.buffer[: end + 2]).replace(b"\r\n..", b"\r\n.")[2:]
            del self.buffer[: end + 5]
            self.in_body = False
            self.end_of_data(content)
        return not self.in_body

    def end_of_data(self, content: bytes) -> None:
        if self.refuses("eod"):
            self.forget()
            return
        self.catcher.keep(self.sender or "", self.recipients, content)
        match self.behaviour:
            case Cut():
                self.hang_up()
            case Slow(delay_in=delay_in):
                self.is_held = True
                asyncio.get_running_loop().call_later(delay_in.total_seconds(), self.release)
            case _:
                self.confirm()

    def release(self) -> None:
        self.is_held = False
        if not self.transport.is_closing():
            self.confirm()
            self.work()

    def confirm(self) -> None:
        self.forget()
        self.say(f"250 2.0.0 Ok: queued as {self.catcher.accepted}")

    def forget(self) -> None:
        self.sender = None
        self.recipients = []
        self.behaviour = Accept()


async def run(arguments: argparse.Namespace) -> None:
    """Serves until SIGTERM or SIGINT; the port file appears, whole, when it listens."""
    keepers = [log_to(arguments.log)] if arguments.log else []
    if arguments.folder:
        keepers.append(files_in(arguments.folder))
    choice = by_tag if arguments.by_tag else accept
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    catcher = await Catcher(choice, keepers, counting=False).start(arguments.host, arguments.port)
    if arguments.port_file:
        draft = arguments.port_file.with_suffix(".part")
        draft.write_text(f"{catcher.port}\n")
        draft.replace(arguments.port_file)
    await stopped.wait()
    await catcher.stop()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("postledger.demo.catcher", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--port-file", type=Path, help="is written when it listens, and holds the port")
    parser.add_argument("--log", type=Path, help="gets one JSON line per accepted mail, appended")
    parser.add_argument("--folder", type=Path, help="gets one .eml file per accepted mail")
    parser.add_argument("--by-tag", action="store_true", help="misbehave as the addresses ask: ada+busy@example.net")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(run(read_arguments()))
