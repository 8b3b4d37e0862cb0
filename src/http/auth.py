"""Asks for an API key at every route that is not public."""

from __future__ import annotations

import time

from aiohttp import web
from attrs import define, field

from ..ledger import access
from ..ledger.access import Caller
from .keys import CALLER, POOL, TABLE
from .problems import Problem
from .route import Handler, Route

FRESH = 1.0
"""Seconds for which a key that was good is taken for good: a revoked one opens nothing any more after that."""

MANY = 10_000


@define
class Callers:
    """Keys seen a moment ago, by the hash of what was shown, so that not every request asks the database."""

    _known: dict[bytes, tuple[float, Caller]] = field(factory=dict)

    def find(self, digest: bytes) -> Caller | None:
        """None: not seen, or not lately."""
        until, caller = self._known.get(digest, (0.0, None))
        return caller if time.monotonic() < until else None

    def keep(self, digest: bytes, caller: Caller) -> None:
        """For FRESH seconds."""
        if len(self._known) >= MANY:
            self._known.clear()
        self._known[digest] = (time.monotonic() + FRESH, caller)


CALLERS: web.AppKey[Callers] = web.AppKey("callers", Callers)


def opens(caller: Caller, route: Route) -> bool:
    """Whether the key opens the route; `admin` opens every one."""
    return not caller.scopes.isdisjoint({route.scope, *route.also, "admin"})


@web.middleware
async def require_scope(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses whoever shows no key, or one that does not open the route."""
    route = request.app[TABLE].get(request.match_info.route)
    if route is not None and route.scope is not None:
        request[CALLER] = await _admit(request, route)
    return await handler(request)


async def _admit(request: web.Request, route: Route) -> Caller:
    caller = await _caller(request)
    if not opens(caller, route):
        scopes = ", ".join(dict.fromkeys((str(route.scope), *route.also, "admin")))
        raise Problem(
            "forbidden",
            f"the key has the scope {', '.join(sorted(caller.scopes))}; this needs one of {scopes}",
            remedy="use a key with one of these scopes: postledger keys create --scope ...",
        )
    return caller


async def _caller(request: web.Request) -> Caller:
    scheme, _, shown = request.headers.get("Authorization", "").partition(" ")
    shown = shown.strip()
    if scheme.lower() != "bearer" or not shown:
        raise _unauthorized("no API key was shown")
    callers = request.app[CALLERS]
    digest = access.digest(shown)
    caller = callers.find(digest)
    if caller is None:
        async with request.app[POOL].connection() as conn:
            caller = await access.find(conn, shown)
        if caller is None:
            raise _unauthorized("the API key is not known, or was revoked")
        callers.keep(digest, caller)
    return caller


def _unauthorized(detail: str) -> Problem:
    return Problem(
        "unauthorized",
        detail,
        remedy="send Authorization: Bearer KEY, with a key that 'postledger keys create' has made",
        headers={"WWW-Authenticate": 'Bearer realm="postledger"'},
    )
