"""The reader of the log by itself: what it does when its connections go at the worst moment."""

from __future__ import annotations

import asyncio
from typing import Any

from attrs import define

from postledger.database import Connection, Database
from postledger.http.feed.hub import Hub
from postledger.projections import follow
from postledger.workers.following import Following
from tests.eventually import eventually

WITHIN = 20.0


@define
class Treacherous:
    """A database whose every new connection costs the ear that listens beside it."""

    real: Database
    owner: Connection
    ear: Any = None

    async def connect(self, **options: Any) -> Connection:
        made = await self.real.connect(**options)
        if self.ear is not None:
            lost = self.ear()
            await self.owner.execute("SELECT pg_terminate_backend($1)", lost.get_server_pid())
            await eventually(lambda: expect(lost.is_closed()), within=WITHIN)
        return made


def expect(condition: bool) -> None:
    assert condition


@define
class Idle:
    """A follower that makes nothing of anything."""

    name: str = "idle"

    async def apply(self, conn: Connection, events: Any) -> None:
        return


async def test_an_ear_that_is_lost_while_the_reader_connects_is_missed_at_once(
    database: str, owner: Connection
) -> None:
    treacherous = Treacherous(Database(database), owner)
    hub = Hub(treacherous, Database(database))  # type: ignore[arg-type]
    treacherous.ear = lambda: hub._ear
    with hub.wanting(events=True, progress=True):
        async with asyncio.timeout(WITHIN):  # it would sleep for longer
            await hub.step()
    assert hub.wake.is_set()
    await hub.close()


async def test_so_it_is_of_any_follower(database: str, owner: Connection) -> None:
    treacherous = Treacherous(Database(database), owner)
    following = Following(treacherous, Idle(), listen=Database(database))  # type: ignore[arg-type]
    treacherous.ear = lambda: following._ear
    async with asyncio.timeout(WITHIN):
        await following.step()
    assert following.wake.is_set()
    await following.close()


async def test_a_log_that_was_put_back_to_an_earlier_time_begins_anew(database: str) -> None:
    hub = Hub(Database(database), Database(database))
    with hub.wanting(events=True, progress=False):
        hub.wake.set()
        hub.reading = True
        hub.ring.reset(follow.Checkpoint(99, 99))
        async with asyncio.timeout(WITHIN):
            await hub.step()
    assert hub.age == 1
    assert not hub.reading
    await hub.close()
