"""One subscriber's way through the log: out of what all share while it keeps up, out of the log itself while not."""

from __future__ import annotations

import asyncio

from attrs import define, field

from ...errors import DataError, UnavailableError
from ...projections import follow, progress
from ...projections.follow import Checkpoint
from ..pool import Pool
from .frames import HEARTBEAT, event_frame, place_frame, progress_frame
from .hub import Hub

PIECE = 200
"""Events that are handed to a connection at once: about as many bytes as it buffers."""

SCAN = 500
"""Events of others that are passed over in one look at the log."""

BEAT = 15.0
"""Seconds without anything new after which something is sent, so that all on the way know that we are there."""

AWAY_AGAIN = 1.0

ACTIVE = 200


@define
class Stream:
    """What it holds is a place in the feed and the pieces of one look; nothing waits for a slow one anywhere."""

    hub: Hub
    pool: Pool
    readers: asyncio.Semaphore
    """How many streams may read the log at once: who comes back with a day to read must not take all connections."""
    key_id: int
    campaign_id: int | None
    events: bool
    progress: bool
    at: Checkpoint
    beat: float = BEAT
    _said: Checkpoint | None = None
    _seen: int = field(init=False)
    _age: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._seen = self.hub.board.change
        self._age = self.hub.age

    async def first(self) -> bytes:
        """How things stand as it begins."""
        frames = [place_frame(self.at)]
        self._said = self.at
        if self.progress:
            async with self.pool.connection() as conn:
                ids = [self.campaign_id] if self.campaign_id is not None else await progress.active(conn, ACTIVE)
                frames += map(progress_frame, await progress.standing(conn, ids))
        return b"".join(frames)

    async def next(self) -> bytes:
        """The next piece, or a heartbeat where there is nothing for a while; empty: the stream ends.

        Raises DataError when the log has become another one, of which no place that was handed out means anything.
        """
        try:
            async with asyncio.timeout(self.beat):
                return await self._next()
        except TimeoutError:
            return self._heartbeat()

    async def _next(self) -> bytes:
        while not (self.hub.ended or self.key_id in self.hub.revoked):
            news = self.hub.news  # before the look
            try:
                frames = await self._look()
            except UnavailableError:
                await asyncio.sleep(AWAY_AGAIN)
                continue
            if frames:
                return b"".join(frames)
            if self._has_come_to_the_end():
                await news.wait()
        return b""

    def _has_come_to_the_end(self) -> bool:
        return not self.hub.reading or self.at >= self.hub.ring.end

    async def _look(self) -> list[bytes]:
        if self._age != self.hub.age:
            raise DataError("the log has begun anew")
        frames = await self._events() if self.events else []
        if not self.events and self.hub.reading:
            self.at = max(self.at, self.hub.ring.end)
        if frames:
            self._said = self.at
        if self.progress:
            frames += self.hub.board.since(self._seen, self.campaign_id)
            self._seen = self.hub.board.change
        return frames

    async def _events(self) -> list[bytes]:
        if not self.hub.reading:
            return []
        if self.hub.ring.covers(self.at):
            frames, self.at = self.hub.ring.after(self.at, self.campaign_id, PIECE)
            return frames
        async with self.readers, self.pool.connection() as conn:
            if self.campaign_id is None:
                page = await follow.read_page(conn, self.at, PIECE)
            else:
                page = await follow.read_page_of(conn, self.at, self.campaign_id, SCAN)
        self.at = page.checkpoint
        return [event_frame(row) for row in page.events]

    def _heartbeat(self) -> bytes:
        if self._said == self.at:
            return HEARTBEAT
        self._said = self.at
        return place_frame(self.at)
