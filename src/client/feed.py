"""A subscription to the live feed that goes on by itself, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import aiohttp
import orjson
from attrs import define, field

from ..ledger.log_documents import Event, Progress
from ..ledger.public import read_answer
from .errors import ApiError, UnreachableError
from .transport import Call, Transport

Message: TypeAlias = Event | Progress

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0

_CLASSES: dict[str, type[Event] | type[Progress]] = {"event": Event, "progress": Progress}


@define
class Feed:
    """Events once each and in order, and how campaigns stand: iterate over it.

    `last_id` says behind what it has handed out: kept by the caller together with what was made of it, and given to
    another Feed as `after`, it is where that one goes on.
    """

    transport: Transport
    campaign: int | None = None
    only: str | None = None
    last_id: str | None = None
    _pause: float = field(default=FIRST_PAUSE, init=False)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Message]:
        while True:
            try:
                async for message in self._connected():
                    yield message
            except (UnreachableError, ApiError) as error:
                if isinstance(error, ApiError) and error.problem.status not in (429, 500, 502, 503, 504):
                    raise
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def _connected(self) -> AsyncIterator[Message]:
        query = {"campaign": self.campaign, "only": self.only}
        headers = {} if self.last_id is None else {"Last-Event-ID": self.last_id}
        said = {name: str(value) for name, value in query.items() if value is not None}
        async with self.transport.open(Call("GET", "/v1/events/stream", said, headers)) as response:
            async for name, data, place in _read(response.content):
                self._pause = FIRST_PAUSE
                if place is not None:
                    self.last_id = place
                if data:
                    yield read_answer(orjson.loads(data), _CLASSES[name])


async def _read(content: aiohttp.StreamReader) -> AsyncIterator[tuple[str, bytes, str | None]]:
    """The messages of a stream: kind, data, id; one without an end never was."""
    kind, data, place = "message", b"", None
    async for line in content:
        if line == b"\n":
            if kind in _CLASSES or not data:
                yield kind, data, place
            kind, data, place = "message", b"", None
            continue
        name, _, value = line.rstrip(b"\n").partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            place = value.decode()
        elif name == b"event":
            kind = value.decode()
        elif name == b"data":
            data += value
