"""How campaigns stood when something last happened to them: the newest state of each, for all streams."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from ...projections.progress import Standing
from .frames import progress_frame

MANY = 1_000
"""Campaigns that are kept; who misses the change of an older one sees its next."""


@define
class Board:
    """Each entry has the number of the change that brought it: a stream asks for what is newer than it has seen."""

    change: int = 0
    _frames: dict[int, tuple[int, bytes]] = field(factory=dict)

    def put(self, standings: Iterable[Standing]) -> None:
        """The newest states; those that say what was said before are no change."""
        for standing in standings:
            frame = progress_frame(standing)
            if self._frames.get(standing.campaign_id, (0, b""))[1] == frame:
                continue
            self.change += 1
            self._frames.pop(standing.campaign_id, None)
            self._frames[standing.campaign_id] = (self.change, frame)
        while len(self._frames) > MANY:
            del self._frames[next(iter(self._frames))]

    def since(self, change: int, campaign_id: int | None) -> list[bytes]:
        """The frames of what has changed since, of one campaign or all."""
        if campaign_id is not None:
            number, frame = self._frames.get(campaign_id, (0, b""))
            return [frame] if number > change else []
        newer: list[bytes] = []
        for number, frame in reversed(self._frames.values()):
            if number <= change:
                break
            newer.append(frame)
        return newer[::-1]
