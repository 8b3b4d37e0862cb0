"""The limits of the API: how often a key may ask, how often a stranger may guess, how long a body may take to come."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import TypeVar

from aiohttp import web
from attrs import define, field

from .keys import CALLER, TABLE
from .limits import MANY, Buckets, caller_address, too_many
from .problems import Problem
from .route import Handler, Route

T = TypeVar("T")

BODY_WITHIN = 60.0
"""Seconds for a body that is read as a whole, which has 4 MiB at most; streams have limits of their own."""

BAD_FOR = 10.0
"""Seconds in which a key that opened nothing is not looked up again."""

_WHOLE = frozenset({"application/json", "text/plain"})


def _per_key() -> Buckets:
    # Far above what one process answers: it ends runaways, not work.
    return Buckets(rate=5_000, burst=10_000)


def _per_stranger() -> Buckets:
    return Buckets(rate=0.5, burst=20)


@define
class Guards:
    """`keys` by the key's id; `strangers` by address: those who showed a key that opens nothing."""

    keys: Buckets = field(factory=_per_key)
    strangers: Buckets = field(factory=_per_stranger)
    _good: OrderedDict[bytes, None] = field(factory=OrderedDict)
    _bad: OrderedDict[bytes, tuple[float, Problem]] = field(factory=OrderedDict)
    """What was said to a key a moment ago. Who shows the same again is mistaken, and does not guess."""

    def check(self, shown: bytes, who: str) -> None:
        """Before the database is asked. Raises Problem."""
        until, said = self._bad.get(shown, (0.0, None))
        if said is not None and time.monotonic() < until:
            raise Problem(said.name, said.detail, remedy=said.remedy, headers=said.headers)
        # Who is known is served, whatever others do behind the same address.
        if shown not in self._good and (seconds := self.strangers.wait(who)):
            raise too_many(seconds, "without a valid key from this address")

    def was_bad(self, shown: bytes, who: str, problem: Problem) -> None:
        """A guess, of whoever sits at this address."""
        self.strangers.take(who)
        self._good.pop(shown, None)
        _remember(self._bad, shown, (time.monotonic() + BAD_FOR, problem))

    def was_good(self, shown: bytes) -> None:
        """It opened something, or would open something else."""
        _remember(self._good, shown, None)


def _remember(known: OrderedDict[bytes, T], shown: bytes, value: T) -> None:
    known[shown] = value
    known.move_to_end(shown)
    while len(known) > MANY:
        known.popitem(last=False)


GUARDS: web.AppKey[Guards] = web.AppKey("guards", Guards)


@web.middleware
async def limit_strangers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Who shows wrong keys too often is not looked at for a while: each look is a question to the database."""
    route = _route(request)
    if route is None or route.scope is None or "Authorization" not in request.headers:
        return await handler(request)
    guards, who = request.app[GUARDS], caller_address(request)
    shown = hashlib.sha256(request.headers["Authorization"].encode("utf-8", "surrogateescape")).digest()
    guards.check(shown, who)
    try:
        return await handler(request)
    except Problem as problem:
        if problem.name == "unauthorized":
            guards.was_bad(shown, who, problem)
        raise
    finally:
        if CALLER in request:
            guards.was_good(shown)


@web.middleware
async def limit_callers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """So many requests for each key; and no body that never comes holds anything."""
    if CALLER in request and (seconds := request.app[GUARDS].keys.take(str(request[CALLER].key_id))):
        raise too_many(seconds, "with this key")
    route = _route(request)
    if route is not None and request.can_read_body and _WHOLE.issuperset(route.consumes):
        await _read(request)
    return await handler(request)


async def _read(request: web.Request) -> None:
    """Kept by the request: whoever reads it afterwards has it at once."""
    try:
        async with asyncio.timeout(BODY_WITHIN):
            await request.read()
    except TimeoutError:
        raise Problem(
            "request-timeout", f"the body did not come within {BODY_WITHIN:.0f} s", remedy="send it again"
        ) from None


def _route(request: web.Request) -> Route | None:
    return request.app[TABLE].get(request.match_info.route)
