"""How often one caller may ask: token buckets, for as many callers as memory is set aside for."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from aiohttp import web

from ..config import Network
from .keys import CONFIG
from .problems import Problem

MANY = 20_000
"""Callers that are remembered; the one heard of longest ago is forgotten first."""

LOOPBACK: Sequence[Network] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
"""From here a proxy on this machine speaks for others."""


class Buckets:
    """One bucket for each name: `burst` at once, `rate` a second from then on."""

    def __init__(
        self, *, rate: float, burst: float, many: int = MANY, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate = rate
        self.burst = burst
        self.many = many
        self.clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What was left in each, and when that was; those not touched for longest come first."""

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, name: str) -> float:
        """Takes one: 0, or the seconds after which there will be one."""
        now = self.clock()
        level = self._level(name, now)
        if level < 1:
            return (1 - level) / self.rate
        self._levels[name] = (level - 1, now)
        self._levels.move_to_end(name)
        while len(self._levels) > self.many:
            self._levels.popitem(last=False)
        return 0.0

    def wait(self, name: str) -> float:
        """The same without taking."""
        return max((1 - self._level(name, self.clock())) / self.rate, 0.0)

    def _level(self, name: str, now: float) -> float:
        level, at = self._levels.get(name, (self.burst, now))
        return min(self.burst, level + (now - at) * self.rate)


def too_many(seconds: float, who: str) -> Problem:
    """The answer to who has asked too often."""
    again = retry_after(seconds)
    return Problem(
        "too-many-requests", f"too many requests {who}", remedy=f"wait {again} s", headers={"Retry-After": again}
    )


def retry_after(seconds: float) -> str:
    """Whole seconds, one at least."""
    return str(max(1, math.ceil(seconds)))


def caller_address(request: web.Request) -> str:
    """Who asks, as a bucket's name."""
    forwarded = ",".join(request.headers.getall("X-Forwarded-For", ()))
    return address_of(request.remote, forwarded, (*LOOPBACK, *request.app[CONFIG].proxies))


def address_of(peer: str | None, forwarded: str, proxies: Sequence[Network]) -> str:
    """An IPv4 address, or the network of 64 bits that an IPv6 one belongs to.

    What X-Forwarded-For says is believed as far as our own proxies wrote it: from its end, until one is not ours.
    """
    address = _read(peer or "")
    for one in reversed(forwarded.split(",")):
        if address is None or not any(address in network for network in proxies):
            break
        before = _read(one.strip())
        if before is None:
            break
        address = before
    return _name(address)


def _read(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text.partition("%")[0].strip("[]"))
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _name(address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> str:
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address) if address is not None else "unknown"
