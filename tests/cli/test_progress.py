"""What is said of a campaign under way: how fast, and how long still, where that can be known."""

import pytest

from postledger.cli.progress import TERMINAL, Meter
from tests.workers.clocks import Clock


def meter(audience: int, sent: int, clock: Clock) -> Meter:
    """So many are sent, 100 of them in the last second."""
    found = Meter(clock)
    for at in (sent - 100, sent):
        found.counted({**dict.fromkeys(TERMINAL, 0), "audience": audience, "sent": at})
        found.mark()
        clock.now += 1
    return found


@pytest.mark.parametrize(
    ("audience", "says"),
    [
        (1000, "100/s, 0:00:05 left"),
        (400_500, "100/s, 1:06:40 left"),
        (520, "100/s, 20 left"),  # who waits for the next try, in five minutes perhaps
        (500, "100/s, 0 left"),
    ],
)
def test_how_long_still(audience: int, says: str) -> None:
    assert meter(audience, 500, Clock()).pace() == says


def test_while_nothing_ends_no_time_is_told() -> None:
    clock = Clock()
    found = meter(520, 500, clock)
    clock.now += 20
    found.mark()
    clock.now += 1
    found.mark()
    assert found.pace() == "waiting"
