"""How often a caller may ask, and who a caller is."""

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.http.limits import LOOPBACK, Buckets, address_of, retry_after


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_so_many_at_once_and_so_many_a_second_from_then_on():
    clock = Clock()
    buckets = Buckets(rate=2, burst=3, clock=clock)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 0]
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.wait("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0
    clock.now += 0.5
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    clock.now += 1000
    assert [buckets.take("a") for _ in range(4)][-1] > 0


def test_memory_has_an_end():
    buckets = Buckets(rate=1, burst=1, many=10, clock=Clock())
    for number in range(1000):
        buckets.take(str(number))
    assert len(buckets) == 10
    assert buckets.take("999") > 0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.floats(0.1, 5), st.integers(1, 10))
def test_never_more_than_rate_and_burst_allow(pauses: list[float], rate: float, burst: int):
    clock = Clock()
    buckets = Buckets(rate=rate, burst=burst, clock=clock)
    granted = 0
    for pause in pauses:
        clock.now += pause
        granted += buckets.take("a") == 0
        assert granted <= burst + (clock.now - 100) * rate + 1e-6


@pytest.mark.parametrize(("seconds", "header"), [(0.01, "1"), (1.0, "1"), (1.2, "2"), (60, "60")])
def test_whole_seconds(seconds: float, header: str):
    assert retry_after(seconds) == header


OURS = (*LOOPBACK, ipaddress.ip_network("10.0.0.0/8"))


@pytest.mark.parametrize(
    ("peer", "said", "name"),
    [
        ("203.0.113.7", None, "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # from a stranger: not believed
        ("127.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("127.0.0.1", "6.6.6.6, 198.51.100.1", "198.51.100.1"),  # what the caller wrote stands before
        ("127.0.0.1", "6.6.6.6, 198.51.100.1, 10.1.1.1", "198.51.100.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "unknown, _hidden", "127.0.0.1"),
        ("::1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", None, "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", None, "203.0.113.7"),
        (None, "198.51.100.1", "unknown"),
    ],
)
def test_who_asks(peer, said, name):
    assert address_of(peer, said or "", OURS) == name
