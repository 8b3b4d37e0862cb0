"""A relay that takes its time for each mail, and notes when it took which."""

import time
from datetime import timedelta

from postledger.demo.behaviours import Behaviour, Slow
from postledger.demo.catcher import Catcher
from postledger.demo.keepers import Caught

HANGS = "hangs.example"
"""The domain for which the relay does not answer in time."""


class Relay(Catcher):
    """`takes_in`: from the final dot to the answer; `hangs_for`: the same for the domain that hangs."""

    def __init__(self, takes_in: timedelta, hangs_for: timedelta) -> None:
        super().__init__(self._treat, [self._note], counting=False)
        self.taken: list[tuple[float, str]] = []
        """Moment in seconds, and domain, of each mail as its last byte came in."""
        self._usual, self._hanging = Slow(takes_in), Slow(hangs_for)

    def _treat(self, recipient: str) -> Behaviour:
        return self._hanging if recipient.endswith(HANGS) else self._usual

    def _note(self, caught: Caught) -> None:
        self.taken.append((time.perf_counter(), caught.recipient.rpartition("@")[2]))
