"""The newest events, ready for the wire: what all streams share, and never more than so much."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from attrs import define, field, frozen

from ...projections.follow import Checkpoint

MANY = 4_000
"""Events that are kept at least, once there were so many; twice as many at most."""

LARGE = 4 << 20
"""Bytes after which the older half of them goes, however few they are."""


@frozen
class Entry:
    """An event as it goes out."""

    at: Checkpoint
    campaign_id: int
    frame: bytes


@define
class Ring:
    """Everything between two places of the feed; whoever stands before `start` has to read the log itself."""

    start: Checkpoint = field(factory=Checkpoint)
    end: Checkpoint = field(factory=Checkpoint)
    _entries: list[Entry] = field(factory=list)
    _places: list[Checkpoint] = field(factory=list)
    _size: int = 0

    def reset(self, at: Checkpoint) -> None:
        """Nothing is known of what lies before."""
        self.start = self.end = at
        self._entries, self._places, self._size = [], [], 0

    def extend(self, entries: Iterable[Entry], end: Checkpoint) -> None:
        """What comes behind `end` of before, in order, up to another one."""
        for entry in entries:
            self._entries.append(entry)
            self._places.append(entry.at)
            self._size += len(entry.frame)
        self.end = end
        while len(self._entries) > 2 * MANY or (self._size > LARGE and len(self._entries) > 1):
            self._forget(len(self._entries) // 2)

    def covers(self, at: Checkpoint) -> bool:
        """Whether all behind this place is here, as far as it was read."""
        return at >= self.start

    def after(self, at: Checkpoint, campaign_id: int | None, limit: int) -> tuple[list[bytes], Checkpoint]:
        """What up to `limit` events behind a covered place have for one campaign, or all; and the place behind them."""
        first = bisect_right(self._places, at)
        last = min(first + limit, len(self._entries))
        found = [
            entry.frame
            for entry in self._entries[first:last]
            if campaign_id is None or entry.campaign_id == campaign_id
        ]
        return found, max(at, self.end if last == len(self._entries) else self._places[last - 1])

    def _forget(self, count: int) -> None:
        self.start = self._places[count - 1]
        self._size -= sum(len(entry.frame) for entry in self._entries[:count])
        del self._entries[:count], self._places[:count]
