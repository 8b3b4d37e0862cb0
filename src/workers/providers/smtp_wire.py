"""The bytes of an SMTP session after its login: commands out, whole replies in, nothing lost or mixed up."""

import asyncio
import re
from collections import deque
from typing import cast

from attrs import frozen

_LINE = re.compile(rb"([2-5][0-9][0-9])(?:([ -])(.*))?")
_LINE_LIMIT = 8 * 1024
_REPLY_LIMIT = 32 * 1024


class Lost(Exception):  # noqa: N818 - named for what happened to the connection
    """The connection went, or its relay fell silent or out of step: nothing more can be read from it."""


@frozen
class Answer:
    """One whole reply; `text` is its lines as they came, codes included."""

    code: int
    text: str


class Wire(asyncio.Protocol):
    """Takes over the transport of a session that is set up.

    It keeps each reply that arrives, asked for or not. A relay may say 421 at any time and hang up; who reads
    that as the answer to a later command, or drops it, takes a lost mail for a sent one or the reverse.
    """

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._buffer = bytearray()
        self._lines: list[str] = []
        self._answers: deque[Answer] = deque()
        self._awaited: asyncio.Future[Answer] | None = None
        self._full: asyncio.Future[None] | None = None
        self.lost = ""
        """Why nothing more will come; empty while the session lives."""
        # A written body counts as gone when the kernel has all of it, so that what is cut off before the dot
        # is known to be cut off before the dot.
        self._transport.set_write_buffer_limits(high=1)
        self._transport.set_protocol(self)

    @property
    def quiet(self) -> bool:
        """Whether the peer is there and has said nothing that was not asked for."""
        return not self.lost and not self._answers and not self._transport.is_closing()

    async def ask(self, command: bytes, within: float) -> Answer:
        """One command, one reply; raises Lost. A refusal that came before the command is the reply to it."""
        if not self.quiet:
            return self.early()
        self.write(command + b"\r\n")
        return await self.answer(within)

    def early(self) -> Answer:
        """What the relay said unasked, which ends the session; raises Lost where that was no refusal."""
        answer = self._answers.popleft() if self._answers else None
        self._fail("the relay is out of step")
        if answer is None or answer.code < 400:
            raise Lost(self.lost)
        return answer

    async def answer(self, within: float) -> Answer:
        """The next reply, waited for at most `within` seconds; raises Lost."""
        try:
            async with asyncio.timeout(within):
                return await self.expect()
        except TimeoutError:
            self.abort()
            raise Lost(f"no answer within {within:g} s") from None

    def expect(self) -> asyncio.Future[Answer]:
        """The next reply, or Lost, as a future."""
        self._awaited = asyncio.get_running_loop().create_future()
        self._hand_over()
        return self._awaited

    def write(self, data: bytes | memoryview) -> None:
        """Raises Lost where the connection is known to be gone."""
        if self.lost:
            raise Lost(self.lost)
        self._transport.write(data)

    async def flush(self, within: float) -> None:
        """Returns when the kernel has taken all that was written; raises Lost."""
        if self._full is not None:
            try:
                async with asyncio.timeout(within):
                    await self._full
            except TimeoutError:
                self.abort()
                raise Lost(f"nothing taken within {within:g} s") from None
        if self.lost:
            raise Lost(self.lost)

    def close(self) -> None:
        """Lets what was written out and hangs up."""
        self._transport.close()

    def abort(self) -> None:
        """Hangs up at once; what was not written yet is never sent."""
        self._fail("connection given up")
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        *lines, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            self._take(bytes(line.rstrip(b"\r")))
        if len(rest) > _LINE_LIMIT or sum(map(len, self._lines)) > _REPLY_LIMIT:
            self._out_of_step("a reply without end")

    def eof_received(self) -> None:
        self._fail("the relay hung up")

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the relay hung up" if exc is None else "connection lost")

    def pause_writing(self) -> None:
        self._full = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._full is not None and not self._full.done():
            self._full.set_result(None)
        self._full = None

    def _take(self, line: bytes) -> None:
        found = _LINE.fullmatch(line)
        if found is None or len(line) > _LINE_LIMIT:
            self._out_of_step(f"the relay answered {line[:80]!r}")
            return
        self._lines.append(line.decode("utf-8", "replace"))
        if found[2] != b"-":
            self._answers.append(Answer(int(found[1]), "\n".join(self._lines)))
            self._lines.clear()
            self._hand_over()

    def _hand_over(self) -> None:
        if self._awaited is None or self._awaited.done():
            return
        if self._answers:
            self._awaited.set_result(self._answers.popleft())
        elif self.lost:
            self._awaited.set_exception(Lost(self.lost))
            self._awaited.exception()

    def _out_of_step(self, why: str) -> None:
        self._fail(why)
        self._transport.abort()

    def _fail(self, why: str) -> None:
        self.lost = self.lost or why
        self._hand_over()
        self.resume_writing()
