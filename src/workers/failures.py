"""How many of a campaign's last outcomes were failures, and whether that is too many to go on."""

from __future__ import annotations

from collections import deque
from math import ceil

from ..ledger.campaigns import DEFAULT_SHARE

LEAST = 1000
"""Outcomes that are looked at where nobody said anything: who sends to fewer hears of it at the end."""

LEAST_ASKED_FOR = 100
FAILURES = 10
"""Failures at the least that a pause is founded on, however small the share: two of a hundred prove no 1%."""


class Failures:
    """The last outcomes of one campaign in one worker. `share` is in percent; None: the default, 100: no limit."""

    def __init__(self, share: int | None) -> None:
        self.share = DEFAULT_SHARE if share is None else share
        asked_for = max(LEAST_ASKED_FOR, ceil(100 * FAILURES / self.share))
        self.least = LEAST if share is None else asked_for
        self._last: deque[bool] = deque(maxlen=self.least)
        self._failed = 0

    def note(self, *, failed: bool) -> bool:
        """One more outcome; True when there were too many failures, and then the count begins anew."""
        if len(self._last) == self.least:
            self._failed -= self._last[0]
        self._last.append(failed)
        self._failed += failed
        if not failed or self._failed * 100 <= self.share * self.least:
            return False  # however the rest of them turn out
        self._last.clear()
        self._failed = 0
        return True
