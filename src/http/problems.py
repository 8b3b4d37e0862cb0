"""Errors as RFC 9457 problems: what kinds there are, what class of error is which, and the middleware that answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import structlog
from aiohttp import web
from attrs import frozen

from ..errors import (
    ConfigurationError,
    ConflictError,
    DataError,
    NotFoundError,
    PostledgerError,
    UnavailableError,
    UsageError,
)
from .route import Handler

log = structlog.get_logger(__name__)


@frozen
class Kind:
    """A `type` of problem: its status and its title, which never change for one name."""

    status: int
    title: str


KINDS: dict[str, Kind] = {
    "malformed": Kind(400, "The request cannot be read"),
    "unauthorized": Kind(401, "A valid API key is needed"),
    "forbidden": Kind(403, "The API key does not open this"),
    "not-found": Kind(404, "There is no such thing"),
    "method-not-allowed": Kind(405, "The path does not have this method"),
    "not-acceptable": Kind(406, "No form of the answer is acceptable"),
    "request-timeout": Kind(408, "The request took too long to come"),
    "conflict": Kind(409, "The state does not allow this"),
    "in-progress": Kind(409, "A request with this Idempotency-Key is under way"),
    "precondition-failed": Kind(412, "It has changed since it was read"),
    "too-large": Kind(413, "The request is too large"),
    "unsupported-media-type": Kind(415, "The content type is not taken here"),
    "invalid": Kind(422, "A value is not acceptable"),
    "key-reused": Kind(422, "The Idempotency-Key belongs to another request"),
    "precondition-required": Kind(428, "If-Match is needed"),
    "too-many-requests": Kind(429, "Too many requests"),
    "internal": Kind(500, "A fault in Postledger"),
    "unavailable": Kind(503, "The service cannot do this now"),
}

# By the nearest class of the error tree.
_NAMES: dict[type[PostledgerError], str] = {
    UsageError: "malformed",
    DataError: "invalid",
    NotFoundError: "not-found",
    ConflictError: "conflict",
    UnavailableError: "unavailable",
    ConfigurationError: "unavailable",
    PostledgerError: "internal",
}

_BY_STATUS = {400: "malformed", 404: "not-found", 405: "method-not-allowed", 408: "request-timeout", 413: "too-large"}

FAULT = "something went wrong here; the log says what"

AGAIN_IN = "2"
"""Retry-After of what passes by itself, seconds."""


class Problem(Exception):  # noqa: N818 - the name of RFC 9457
    """An answer that says what is wrong: `name` is one of KINDS, `field` the value's place, `remedy` what to do."""

    def __init__(
        self,
        name: str,
        detail: str,
        *,
        field: str | None = None,
        remedy: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.name = name
        self.kind = KINDS[name]
        self.detail = detail
        self.field = field
        self.remedy = remedy
        self.headers = dict(headers or {})
        self.more = more
        """Members of its own."""

    def document(self) -> dict[str, Any]:
        """As RFC 9457 has it; `field` and `remedy` where there are any."""
        extra = {"field": self.field, "remedy": self.remedy, **self.more}
        return {
            "type": f"/problems/{self.name}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            **{name: value for name, value in extra.items() if value is not None},
        }

    def response(self) -> web.Response:
        """The answer."""
        return web.Response(
            status=self.kind.status,
            body=orjson.dumps(self.document()),
            content_type="application/problem+json",
            headers=self.headers,
        )


def problem_of(error: PostledgerError) -> Problem:
    """What the caller is told of an error that knows nothing of HTTP."""
    name = next(_NAMES[kind] for kind in type(error).__mro__ if kind in _NAMES)
    if name == "unavailable":  # the error names the database, which is none of the caller's business
        return Problem(
            name, "the database cannot be used just now", remedy="try again", headers={"Retry-After": AGAIN_IN}
        )
    return Problem(name, FAULT if name == "internal" else str(error))


@web.middleware
async def answer_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error leaves as a problem; what is a fault of ours leaves no more than that, and the log has the rest."""
    try:
        return await handler(request)
    except Problem as error:
        return error.response()
    except PostledgerError as error:
        return _told(request, error).response()
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return _of_framework(error).response()
    except Exception:
        log.exception("request_failed", route=_route(request))
        return Problem("internal", FAULT).response()


def _told(request: web.Request, error: PostledgerError) -> Problem:
    problem = problem_of(error)
    if problem.kind.status >= 500:
        log.warning("request_failed", route=_route(request), reason=str(error))
    return problem


def _of_framework(error: web.HTTPException) -> Problem:
    name = _BY_STATUS.get(error.status, "malformed" if error.status < 500 else "internal")
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem(
            name, f"{error.method} is none of {allowed}", remedy=f"use {allowed}", headers={"Allow": allowed}
        )
    if isinstance(error, web.HTTPNotFound):
        return Problem(name, "no such path", remedy="see /openapi.json for those there are")
    return Problem(name, error.text or error.reason)


def _route(request: web.Request) -> str:
    """The path's pattern: a path itself may hold somebody's address, or a token."""
    resource = request.match_info.route.resource
    return f"{request.method} {'(none)' if resource is None else resource.canonical}"
