"""What the server says, as errors a user understands: by SQLSTATE and class, never by message text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from ..config import redact
from ..errors import (
    ConfigurationError,
    ConflictError,
    DataError,
    NotFoundError,
    PostledgerError,
    UnavailableError,
)

# The SQLSTATEs of schema.sql.
_OURS: dict[str, type[PostledgerError]] = {
    "PL001": NotFoundError,
    "PL002": ConflictError,
    "PL003": DataError,
    "PL004": ConflictError,
    "PL005": ConflictError,
    "PL006": ConflictError,
    "PL007": UnavailableError,
    "PL009": ConflictError,
    "PL010": ConfigurationError,
}

# Connection lost, server shutting down or starting up, out of connections, out of disk: the server, not the request.
GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what asyncpg says of a call on a connection whose end it has not read yet
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InsufficientResourcesError,
    asyncpg.InternalServerError,  # an upgrade has taken a function away from under a call
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.QueryCanceledError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.LockNotAvailableError,
    OSError,
    TimeoutError,
)


def first_line(error: BaseException) -> str:
    """What happened, without the details, which may hold somebody's data."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def translate(error: BaseException, dsn: str) -> PostledgerError | None:
    """The error a user should see for what asyncpg raised, or None if it is none of the expected ones."""
    where = redact(dsn)
    match error:
        case asyncpg.PostgresError(sqlstate=str() as state) if state in _OURS:
            return _OURS[state](first_line(error))
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return UnavailableError(
                f"database {where} refuses the login ({first_line(error)}): check user and password in --database"
            )
        case asyncpg.InvalidCatalogNameError():
            return UnavailableError(
                f"database {where} does not exist ({first_line(error)}): create it (createdb) or correct --database"
            )
        case asyncpg.InvalidParameterValueError() | asyncpg.UndefinedTableError() | asyncpg.UndefinedFunctionError():
            return ConfigurationError(
                f"database {where} has no Postledger schema yet ({first_line(error)}): run 'postledger migrate'"
            )
        case asyncpg.InsufficientPrivilegeError():
            return ConfigurationError(
                f"database {where}: {first_line(error)}: the login needs GRANT postledger_app TO it"
            )
        case asyncpg.ClientConfigurationError():
            return ConfigurationError(f"database URL {where} is not usable: {first_line(error)}")
        case asyncpg.ReadOnlySQLTransactionError():
            return UnavailableError(
                f"database {where} is read-only ({first_line(error)}): name the primary, not a standby"
            )
        case asyncpg.FeatureNotSupportedError():
            return UnavailableError(
                f"database {where} does not do this ({first_line(error)}): name the primary, not a standby"
            )
        case asyncpg.TooManyConnectionsError():
            return UnavailableError(
                f"database {where} has no connection left for us ({first_line(error)}): end what is idle, or "
                "raise max_connections"
            )
        case _ if isinstance(error, GONE):
            return UnavailableError(
                f"database {where} cannot be used ({first_line(error)}): is the server up, and --database right?"
            )
    return None


@contextmanager
def translated(dsn: str) -> Iterator[None]:
    """Database errors inside the block leave it as PostledgerError."""
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError) as error:
        told = translate(error, dsn)
        if told is None:
            raise
        raise told from error
