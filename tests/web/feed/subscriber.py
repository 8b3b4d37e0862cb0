"""A subscriber as a process of its own, to be killed: what it has seen it writes down, and goes on behind that."""

from __future__ import annotations

import asyncio
import os
import sys

from postledger.client import Client
from postledger.ledger.log_documents import Event


def last_id(path: str) -> str | None:
    """What the last whole line says; a torn one was never taken note of."""
    with open(path, "rb+") as notes:
        content = notes.read()
        whole = content[: content.rfind(b"\n") + 1]
        notes.truncate(len(whole))
    lines = whole.splitlines()
    return lines[-1].split()[1].decode() if lines else None


async def follow(url: str, key: str, path: str, after: str) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with Client(url, key) as client:
        feed = client.feed(only="events", after=last_id(path) or after)
        async for event in feed:
            assert isinstance(event, Event)
            os.write(out, f"{event.position} {feed.last_id}\n".encode())


if __name__ == "__main__":
    asyncio.run(follow(*sys.argv[1:]))
