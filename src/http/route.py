"""What a line of the route table says: who may call, what goes in, what comes out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

from aiohttp import web
from attrs import frozen

from ..ledger.access import Scope

__all__ = ["Handler", "Route", "Scope"]

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


@frozen
class Route:
    """One method of one path. Authorisation, OpenAPI and the tests of both read nothing else.

    `scope`: what a key must open, None is open to everybody; `also`: scopes that open it too. A key with `admin` opens
    everything. `body`, `query` and `answer` are attrs classes; `problems` are names of problems.KINDS that it may
    answer with beside those of every route.
    """

    method: Literal["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"]
    path: str
    handler: Handler
    scope: Scope | None
    summary: str
    body: type | None = None
    answer: type | None = None
    query: type | None = None
    status: int = 200
    also: tuple[Scope, ...] = ()
    consumes: tuple[str, ...] = ("application/json",)
    produces: str = "application/json"
    idempotent: bool = False
    """It is a POST that keeps Idempotency-Key, by `effects.effect`."""
    if_match: Literal["required", "optional"] | None = None
    problems: tuple[str, ...] = ()
