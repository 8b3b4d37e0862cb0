"""Whose turn it is, and how much of a sender each campaign gets: in this worker's own memory, so that no row is hot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from attrs import define, field

from .lanes import Lane
from .tokens import PORTION

REMEMBERED = 1000

PORTIONS = round(1 / PORTION)
"""In a second."""


@define
class Turns:
    """Higher priority first; among equals the one served longest ago."""

    _served: dict[int, int] = field(factory=dict)
    _count: int = 0

    def order(self, campaigns: Iterable[int], priorities: Mapping[int, int]) -> list[int]:
        return sorted(campaigns, key=lambda one: (-priorities.get(one, 0), self._served.get(one, 0), one))

    def served(self, campaign_id: int) -> None:
        """It has had its turn just now."""
        self._count += 1
        self._served.pop(campaign_id, None)
        self._served[campaign_id] = self._count
        if len(self._served) > REMEMBERED:
            del self._served[next(iter(self._served))]  # the one longest ago, which is where a new one stands too


@define
class Round:
    """One going over of all campaigns: what each lane has to give, and who wants it with what priority."""

    lanes: Mapping[int, Lane]
    priorities: Mapping[int, int]
    room: dict[Lane, int] = field(factory=dict)
    held_back: set[Lane] = field(factory=set)
    """Lanes that could give more, but for the share of others."""
    left: set[Lane] = field(factory=set)
    """Lanes of campaigns that wanted no more, so that the shares are larger now."""
    _whole: dict[Lane, int] = field(factory=dict)
    _rivals: Counter[tuple[Lane, int]] = field(factory=Counter)
    _highest: dict[Lane, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for campaign_id, lane in self.lanes.items():
            priority = self._priority(campaign_id)
            self._rivals[lane, priority] += 1
            self._highest[lane] = max(priority, self._highest.get(lane, priority))
            if lane not in self._whole:
                self._whole[lane] = self.room[lane] = lane.claimable()

    def portion(self, campaign_id: int) -> int:
        """How many rows this campaign may claim now.

        Of the slots it has no more than its share, so that a slow campaign leaves some, and one that is alone leaves
        a few for whoever comes next. Mails that a rate allows come
        in portions, each whole for one campaign, unless there are so many that not all would have a turn in a second.
        """
        lane = self.lanes[campaign_id]
        rivals = self._rivals[lane, self._priority(campaign_id)]
        wanted = min(self._open_to(campaign_id), lane.share(rivals) - lane.held[campaign_id])
        if lane.tokens is not None:
            wanted = min(wanted, max(1, PORTIONS * self._whole[lane] // rivals))
        if wanted <= 0 < self.room[lane]:
            self.held_back.add(lane)
        return max(wanted, 0)

    def _open_to(self, campaign_id: int) -> int:
        """The slots that are free, less the spare ones, which are for whoever has none yet and nobody goes before."""
        lane = self.lanes[campaign_id]
        open_to_all = lane.free - lane.spare
        is_new = not lane.held[campaign_id] and self._priority(campaign_id) == self._highest[lane]
        return min(self.room[lane], max(open_to_all, lane.spare) if is_new else open_to_all)

    def gave(self, campaign_id: int, count: int) -> None:
        """So many rows were claimed."""
        self.room[self.lanes[campaign_id]] -= count

    def wants_no_more(self, campaign_id: int) -> None:
        """Nothing is due there any more."""
        self.left.add(self.lanes[campaign_id])

    @property
    def is_unfair(self) -> bool:
        """Somebody was held back for those who turned out to want no more: go round once again."""
        return bool(self.held_back & self.left)

    def _priority(self, campaign_id: int) -> int:
        return self.priorities.get(campaign_id, 0)
