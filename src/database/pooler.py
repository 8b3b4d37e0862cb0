"""What changes when a pooler stands between us and the server, and what kind of pooler it is."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
from asyncpg.cursor import CursorFactory

from ..config import redact
from ..errors import ConfigurationError
from .blocks import Blocks

sql = Blocks("postledger.database", "connect.sql")

_OTHER_BACKEND = "PL011"

_HEARD_WITHIN = 1.0
"""Seconds in which a pooler in session mode has passed a notification on."""

_TIDY_TRIES = 5


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


async def keeps_sessions(ear: asyncpg.Connection, mouth: asyncpg.Connection) -> bool:
    """Whether the pooler leaves a client one session of the server for as long as it stays: session mode.

    In transaction mode a client at rest has no session, so no notification can reach it. What the attempt leaves behind
    in somebody's session there, an ear for a name that is never called again, is taken away.
    """
    heard = asyncio.Event()
    channel = f"postledger_{uuid4().hex}"
    pid = None
    try:
        async with asyncio.timeout(_HEARD_WITHIN):
            async with ear.transaction(isolation="read_committed"):
                pid = await ear.fetchval(sql.backend)
                await ear.add_listener(channel, lambda *_: heard.set())
            await mouth.fetchval(sql.notify, channel)
            await heard.wait()
            kept: bool = await ear.fetchval(sql.listens, channel)
            return kept
    except TimeoutError:
        if pid is not None:
            await _stop_listening(mouth, pid, channel)
        return False


async def _stop_listening(conn: asyncpg.Connection, pid: int, channel: str) -> None:
    """A pooler gives out the session that was used last; where another has it now, it ends with the pooler's."""
    for _ in range(_TIDY_TRIES):
        try:
            await conn.execute(sql.unlisten_there.format(pid=pid, channel=channel))
        except asyncpg.PostgresError as error:
            if error.sqlstate != _OTHER_BACKEND:
                raise
        else:
            return


async def keep(conn: asyncpg.Connection, settings: dict[str, str]) -> None:
    """Gives a session that is ours alone what the pooler did not take at start-up."""
    await conn.execute(sql.set_for_session, list(settings), list(settings.values()))


async def check_login(conn: asyncpg.Connection, dsn: str, schema: str, role: str | None) -> None:
    """Raises ConfigurationError unless the login has what a pooler does not pass on (`migrate --login` gives it)."""
    row = await conn.fetchrow(sql.login_settings, schema, role)
    assert row is not None
    missing = ", ".join(name for name, right in row.items() if right is False)
    if missing:
        raise ConfigurationError(
            f"database {redact(dsn)} is behind a pooler in transaction mode, and its login has not the right {missing}"
            ": run 'postledger migrate --login NAME' on the server itself, then let the pooler connect anew "
            "(pgbouncer: RECONNECT)"
        )


async def cursor(conn: asyncpg.Connection, query: str, *args: Any, prefetch: int | None = None) -> CursorFactory[Any]:
    """A cursor inside a transaction, which leaves no named statement behind in a pooler's session."""
    statement = await conn.prepare(query)
    return statement.cursor(*args, prefetch=prefetch)
