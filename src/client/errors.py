"""What a call can come to beside its answer: problems as the service tells them, and no answer at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
from attrs import frozen

_KNOWN = ("type", "title", "status", "detail", "field", "remedy")


@frozen
class Problem:
    """RFC 9457, as the service answers it."""

    name: str
    """What `type` says behind /problems/: stable, for programs."""
    status: int
    title: str
    detail: str
    field: str | None = None
    """The value that is wrong."""
    remedy: str | None = None
    more: Mapping[str, Any] = attrs.field(factory=dict)
    """Members of its own, as `report`."""

    @classmethod
    def of(cls, status: int, document: Mapping[str, Any]) -> Problem:
        """From what came; whatever stands between us and the service may have written it."""
        return cls(
            str(document.get("type", "")).rpartition("/")[2] or "unknown",
            status,
            str(document.get("title", "")),
            str(document.get("detail", "")) or f"status {status}",
            document.get("field"),
            document.get("remedy"),
            {name: value for name, value in document.items() if name not in _KNOWN},
        )


class ClientError(Exception):
    """A call that did not come to its answer."""


class UnreachableError(ClientError):
    """No answer, or not all of it: for a call that changes something it is not known whether it did."""


class ApiError(ClientError):
    """The service said no; `problem` says why."""

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        remedy = f" ({problem.remedy})" if problem.remedy else ""
        super().__init__(f"{problem.status} {problem.name}: {problem.detail}{remedy}")
        self.problem = problem
        self.retry_after = retry_after
        """Seconds after which it may be tried again, where the service said so."""


class UnauthorizedError(ApiError):
    """401: no key, or one that is not known."""


class ForbiddenError(ApiError):
    """403: the key does not open this."""


class NotFoundError(ApiError):
    """404."""


class ConflictError(ApiError):
    """409 or 412: the state does not allow it, or it has changed since it was read."""


class InvalidError(ApiError):
    """400, 413, 415, 422 or 428: the request has to be another one."""


class TooManyRequestsError(ApiError):
    """429."""


class UnavailableError(ApiError):
    """503: nothing was done; it passes."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    413: InvalidError,
    415: InvalidError,
    422: InvalidError,
    428: InvalidError,
    429: TooManyRequestsError,
    503: UnavailableError,
}


def error_of(problem: Problem, retry_after: float | None) -> ApiError:
    """The exception of a problem's status."""
    return _BY_STATUS.get(problem.status, ApiError)(problem, retry_after)
