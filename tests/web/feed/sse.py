"""A subscriber of the live feed: reads Server-Sent Events off a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from attrs import define, field

WITHIN = 20.0


@define
class Message:
    """One event of a stream as a browser would see it."""

    kind: str
    data: Any


@define
class Reader:
    """`last_id` is what a browser would send as Last-Event-ID when it comes back."""

    content: aiohttp.StreamReader
    last_id: str | None = None
    events: list[dict[str, Any]] = field(factory=list)
    progress: list[dict[str, Any]] = field(factory=list)

    async def next(self) -> Message | None:
        """The next message; None: an id alone, or a sign of life."""
        kind, data = "message", ""
        while line := (await self.content.readline()).decode():
            name, _, value = line.rstrip("\n").partition(":")
            value = value.removeprefix(" ")
            if line == "\n":
                break
            if name == "id":
                self.last_id = value
            elif name == "event":
                kind = value
            elif name == "data":
                data += value
        else:
            raise EOFError
        if not data:
            return None
        message = Message(kind, orjson.loads(data))
        {"event": self.events, "progress": self.progress}[kind].append(message.data)
        return message

    async def until(self, done: Callable[[Reader], bool]) -> None:
        async with asyncio.timeout(WITHIN):
            while not done(self):
                await self.next()

    @property
    def positions(self) -> list[int]:
        return [int(event["position"]) for event in self.events]


@asynccontextmanager
async def subscribed(api: Any, query: str = "", *, last_id: str | None = None, key: str = "") -> AsyncIterator[Reader]:
    headers = {"Authorization": f"Bearer {key or api.key}"}
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    timeout = aiohttp.ClientTimeout(total=None, sock_read=WITHIN)
    async with api.session.get(f"{api.url}/v1/events/stream{query}", headers=headers, timeout=timeout) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Reader(response.content)
