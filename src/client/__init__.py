"""A typed client for the HTTP API, and the values that it takes and gives."""

from .client import Client
from .errors import (
    ApiError,
    ClientError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
)
from .feed import Feed

__all__ = [
    "ApiError",
    "Client",
    "ClientError",
    "ConflictError",
    "Feed",
    "ForbiddenError",
    "InvalidError",
    "NotFoundError",
    "TooManyRequestsError",
    "UnauthorizedError",
    "UnavailableError",
    "UnreachableError",
]
