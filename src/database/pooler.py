"""What changes when a pooler in transaction mode stands between us and the server."""

from __future__ import annotations

from typing import Any

import asyncpg
from asyncpg.cursor import CursorFactory

from ..config import redact
from ..errors import ConfigurationError
from .blocks import Blocks

sql = Blocks("postledger.database", "connect.sql")

_OTHER_BACKEND = "PL011"


class PooledConnection(asyncpg.Connection):
    """A connection whose every transaction may run in another session of the server.

    So it keeps nothing there: no prepared statement, no LISTEN, no session lock. asyncpg without a statement cache is
    safe as it is: it parses and describes without a Sync, which holds the pooler's server for it, and parses once more
    in the message that binds and executes.
    """


def is_pooled(conn: asyncpg.Connection) -> bool:
    """Whether nothing of this connection's session can be relied on."""
    return type(conn) is PooledConnection  # isinstance() is true of any connection: asyncpg's pool needs that


async def stands_between(conn: asyncpg.Connection) -> bool:
    """Whether a pooler let us in: it makes up the process number that it greets with."""
    try:
        await conn.execute(sql.refuse_other_backend.format(pid=conn.get_server_pid()))
    except asyncpg.PostgresError as error:
        if error.sqlstate != _OTHER_BACKEND:
            raise
        return True
    return False


async def check_login(conn: asyncpg.Connection, dsn: str, schema: str, role: str | None) -> None:
    """Raises ConfigurationError unless the login has what a pooler does not pass on (`migrate --login` gives it)."""
    row = await conn.fetchrow(sql.login_settings, schema, role)
    assert row is not None
    missing = ", ".join(name for name, right in row.items() if right is False)
    if missing:
        raise ConfigurationError(
            f"database {redact(dsn)} is behind a pooler, and its login has not the right {missing}: run 'postledger "
            "migrate --login NAME' on the server itself, then let the pooler connect anew (pgbouncer: RECONNECT)"
        )


async def cursor(conn: asyncpg.Connection, query: str, *args: Any, prefetch: int | None = None) -> CursorFactory[Any]:
    """A cursor inside a transaction, which leaves no named statement behind in a pooler's session."""
    statement = await conn.prepare(query)
    return statement.cursor(*args, prefetch=prefetch)
