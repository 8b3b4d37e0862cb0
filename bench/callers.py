"""Callers that ask one thing after the other, each on a connection of its own, at the least cost to themselves."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from attrs import frozen

_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)\r\n", re.IGNORECASE)


@frozen
class Asked:
    """Answers a second, how long each took in ms (sorted), and how many were not what was wanted."""

    rate: float
    waits: Sequence[float]
    wrong: int

    def wait(self, share: float) -> float:
        return self.waits[min(int(len(self.waits) * share), len(self.waits) - 1)]


class Caller(asyncio.Protocol):
    """Writes a request when the answer to the one before is whole."""

    def __init__(self, make: Callable[[], bytes], status: bytes) -> None:
        self.make = make
        self.status = status
        self.waits: list[tuple[float, float]] = []
        self.wrong = 0
        self.ended = asyncio.Event()
        self.until = float("inf")
        self._got = b""
        self._at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head = self._got.find(b"\r\n\r\n")
        if head < 0:
            return
        found = _LENGTH.search(self._got, 0, head + 2)
        assert found is not None, self._got[:200]
        if len(self._got) < head + 4 + int(found[1]):
            return
        now = time.perf_counter()
        self.waits.append((now, (now - self._at) * 1000))
        self.wrong += self._got[9:12] != self.status
        self._got = b""
        if now < self.until:
            self._ask()
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def _ask(self) -> None:
        self._at = time.perf_counter()
        self.transport.write(self.make())


def request(url: str, path: str, key: str, body: bytes) -> bytes:
    """A POST as it goes over the wire."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


async def ask(
    url: str, make: Callable[[], bytes], *, status: bytes, concurrency: int, seconds: float, leave_out: float
) -> Asked:
    """So many callers at once for so many seconds; what came in the first ones does not count."""
    loop = asyncio.get_running_loop()
    callers = [Caller(make, status) for _ in range(concurrency)]
    began = time.perf_counter() + leave_out
    for caller in callers:
        caller.until = began + seconds
    parts = urlsplit(url)
    await asyncio.gather(
        *(loop.create_connection(lambda c=caller: c, parts.hostname, parts.port) for caller in callers)
    )
    await asyncio.gather(*(caller.ended.wait() for caller in callers))
    waits = sorted(wait for caller in callers for at, wait in caller.waits if began <= at < began + seconds)
    return Asked(len(waits) / seconds, waits, sum(caller.wrong for caller in callers))
