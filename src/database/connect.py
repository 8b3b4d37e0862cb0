"""Connections to PostgreSQL as Postledger wants them: schema, role, isolation, codecs, timeouts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
from attrs import frozen

from .errors import GONE, translated

APP_ROLE = "postledger_app"

Connection = asyncpg.Connection


def quote_identifier(name: str) -> str:
    """An SQL identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


def _encode_json(value: Any) -> bytes:
    return b"\x01" + (value if isinstance(value, bytes) else orjson.dumps(value))


def _decode_json(value: bytes) -> Any:
    return orjson.loads(value[1:])


async def _prepare(conn: Connection) -> None:
    # The binary form: a text codec would break COPY and cost a detour through str.
    await conn.set_type_codec("jsonb", schema="pg_catalog", encoder=_encode_json, decoder=_decode_json, format="binary")


@frozen
class Database:
    """Where the database is and as whom we use it; makes connections."""

    dsn: str
    schema: str = "postledger"

    def _settings(self, role: str | None, keepalive: bool, label: str) -> dict[str, str]:
        settings = {
            "application_name": f"postledger {label}".strip(),
            "search_path": f"{quote_identifier(self.schema)}, pg_temp",
            "default_transaction_isolation": "read committed",
            "timezone": "UTC",
        }
        if role is not None:
            settings["role"] = role
        if keepalive:
            # The server notices a client that vanished without a word, and lets go of its session locks.
            settings |= {
                "tcp_keepalives_idle": "5",
                "tcp_keepalives_interval": "2",
                "tcp_keepalives_count": "3",
            }
        return settings

    async def connect(
        self,
        *,
        role: str | None = APP_ROLE,
        label: str = "",
        keepalive: bool = False,
        timeout: float = 10.0,
        command_timeout: float | None = None,
    ) -> Connection:
        """A plain connection. `role` None stays the login role (migrations).

        Raises UnavailableError or ConfigurationError, in one line that names what and the remedy.
        """
        with translated(self.dsn):
            conn: Connection = await asyncpg.connect(
                self.dsn,
                timeout=timeout,
                command_timeout=command_timeout,
                server_settings=self._settings(role, keepalive, label),
            )
            await _prepare(conn)
        return conn

    @asynccontextmanager
    async def connection(self, **options: Any) -> AsyncIterator[Connection]:
        """`connect()` for the length of a block; database errors inside it reach the user in one line."""
        conn = await self.connect(**options)
        try:
            with translated(self.dsn):
                yield conn
        finally:
            await close(conn)


async def close(conn: Connection | None) -> None:
    """Closes politely, or drops the socket when the server does not answer."""
    if conn is None or conn.is_closed():
        return
    try:
        await conn.close(timeout=2)
    except (asyncpg.PostgresError, *GONE, asyncio.CancelledError):
        conn.terminate()


async def fetch_one(conn: Connection, query: str, *args: Any, timeout: float | None = None) -> asyncpg.Record:
    """The one row of a query that always has one."""
    row = await conn.fetchrow(query, *args, timeout=timeout)
    if row is None:
        raise LookupError(f"no row came back from: {query[:60]}")
    return row


def process_label(kind: str) -> str:
    """What a session calls itself in pg_stat_activity."""
    return f"{kind} {os.getpid()}"
