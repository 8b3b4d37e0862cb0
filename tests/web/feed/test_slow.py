"""A subscriber that reads nothing: it costs so much and no more, holds nobody up, and is cut off."""

from __future__ import annotations

import asyncio
import socket

import pytest

from postledger.database import Connection
from postledger.http import streaming
from postledger.http.feed.context import HUB
from postledger.http.feed.ring import LARGE, MANY
from postledger.ledger.sealing import seal_all
from tests.campaigns import draft, enqueue, people
from tests.eventually import eventually
from tests.web.conftest import Api
from tests.web.feed.sse import subscribed

WITHIN = 60.0
MANY_EVENTS = 30_000
"""Some ten megabytes: more than the sockets between the two take."""


def expect(condition: bool) -> None:
    assert condition


async def test_it_is_cut_off_and_nobody_waits_for_it(api: Api, db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STALLED", 1.0)
    hub = api.app[HUB]
    campaign = await draft(db)
    host, port = api.url.removeprefix("http://").split(":")
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(deaf, (host, int(port)))
        head = f"GET /v1/events/stream?only=events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n\r\n"
        await loop.sock_sendall(deaf, head.encode())
        async with subscribed(api, f"?campaign={campaign}&only=events") as reader:
            await eventually(lambda: expect(hub.wanted.streams == 2 and hub.reading), within=WITHIN)
            await enqueue(db, campaign, people(MANY_EVENTS))
            await seal_all(db)
            await reader.until(lambda r: len(r.events) == MANY_EVENTS + 1)
            assert len(set(reader.positions)) == MANY_EVENTS + 1
            await eventually(lambda: expect(hub.wanted.streams == 1), within=WITHIN)
    assert len(hub.ring._entries) <= 2 * MANY
    assert hub.ring._size <= LARGE + 100_000
