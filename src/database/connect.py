"""Connections to PostgreSQL as Postledger wants them: schema, role, isolation, codecs, timeouts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
from attrs import define, field, frozen

from ..config import redact
from ..errors import ConfigurationError
from .errors import GONE, translated
from .pooler import PooledConnection, check_login, keep, keeps_sessions, sql, stands_between

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


async def _be_patient(conn: Connection) -> None:
    if conn.get_server_version().major >= 17:  # no start-up parameter: older servers refuse what they do not know
        await conn.execute(sql.be_patient)


def search_path(schema: str) -> str:
    """The setting that makes the schema ours; whatever a temporary table is called, it comes last."""
    return f"{quote_identifier(schema)}, pg_temp"


@define
class _Way:
    """What the last connection found on its way to the server; the next one need not find out again."""

    pooled: bool = False
    kept: bool | None = None
    """Whether the pooler is in session mode; None is not known yet."""


@frozen
class Database:
    """Where the database is and as whom we use it; makes connections."""

    dsn: str
    schema: str = "postledger"
    _way: _Way = field(factory=_Way, init=False, eq=False, repr=False)

    def _settings(self, role: str | None, keepalive: bool, label: str) -> dict[str, str]:
        settings = {
            **_greeting(label),
            "search_path": search_path(self.schema),
            "default_transaction_isolation": "read committed",
            "jit": "off",
            # Ours are watched from here, and end in order: what a server allows its other clients is no measure.
            "statement_timeout": "0",
            "lock_timeout": "0",
            "idle_in_transaction_session_timeout": "0",
            "idle_session_timeout": "0",
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
        session: bool = False,
        direct: bool = False,
        own: bool = False,
        timeout: float = 10.0,
        command_timeout: float | None = None,
    ) -> Connection:
        """A plain connection. `role` None stays the login role (migrations); `own`: with the settings that the login
        has anyway, search_path and role among them, for what its own SQL says.

        Behind a pooler in transaction mode that is a PooledConnection; `session` finds out, for a second at most,
        whether it is in session mode; `direct` refuses what is not. Raises UnavailableError or ConfigurationError, in
        one line that names what and the remedy.
        """
        options = {"timeout": timeout, "command_timeout": command_timeout}
        with translated(self.dsn):
            settings = _named(label) if own else self._settings(role, keepalive, label)
            if direct or not self._way.pooled:
                conn = await self._straight(settings, options, own=own)
                if conn is not None:
                    return conn
            if await self._is_kept(look=session or direct):
                return await self._kept(settings, options, own=own)
            if direct:
                raise ConfigurationError(
                    f"database {redact(self.dsn)} is behind a pooler in transaction mode: name the server itself with "
                    f"{'--listen' if own else '--database'} for this"
                )
            try:
                return await self._pooled(role, label, options)
            except ConfigurationError:
                if not await self._is_kept(look=True):
                    raise
                return await self._kept(settings, options, own=own)

    async def _straight(self, settings: dict[str, str], options: dict[str, Any], *, own: bool) -> Connection | None:
        """With all settings; None where a pooler is in the way, which refuses them, or takes them and forgets them."""
        try:
            conn: Connection = await asyncpg.connect(self.dsn, server_settings=settings, **options)
        except asyncpg.ProtocolViolationError:
            self._way.pooled = True
            return None
        async with _or_dropped(conn):
            self._way.pooled = await stands_between(conn)
            if not self._way.pooled:
                await _prepare(conn)
                if not own:
                    await _be_patient(conn)
                return conn
        await close(conn)
        return None

    async def _is_kept(self, *, look: bool) -> bool:
        """Whether the pooler in the way is in session mode, as far as that is known."""
        if self._way.kept is None and look:
            async with self._through_pooler() as ear, self._through_pooler() as mouth:
                self._way.kept = await keeps_sessions(ear, mouth)
        return self._way.kept is True

    @asynccontextmanager
    async def _through_pooler(self) -> AsyncIterator[Connection]:
        conn = await self._greeted("", {"timeout": 10.0})
        try:
            yield conn
        finally:
            await close(conn)

    async def _kept(self, settings: dict[str, str], options: dict[str, Any], *, own: bool) -> Connection:
        """A session of the server for as long as we stay, as if it were the server itself."""
        greeting = {name: value for name, value in settings.items() if name in _greeting("")}
        conn: Connection = await asyncpg.connect(self.dsn, server_settings=greeting, **options)
        async with _or_dropped(conn):
            await keep(conn, settings)
            await _prepare(conn)
            if not own:
                await _be_patient(conn)
        return conn

    async def _greeted(self, label: str, options: dict[str, Any]) -> Connection:
        """With the settings that any pooler passes on."""
        conn: Connection = await asyncpg.connect(
            self.dsn,
            server_settings=_greeting(label),
            connection_class=PooledConnection,
            statement_cache_size=0,
            **options,
        )
        return conn

    async def _pooled(self, role: str | None, label: str, options: dict[str, Any]) -> Connection:
        """With the other settings being the login's own."""
        conn = await self._greeted(label, options)
        try:
            async with _or_dropped(conn):
                await check_login(conn, self.dsn, self.schema, role)
                await _prepare(conn)
        except ConfigurationError:
            self._way.pooled = False  # perhaps the pooler has gone; then the straight way is open
            raise
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


def _greeting(label: str) -> dict[str, str]:
    return {**_named(label), "timezone": "UTC", "standard_conforming_strings": "on"}


def _named(label: str) -> dict[str, str]:
    return {"application_name": f"postledger {label}".strip()}


@asynccontextmanager
async def _or_dropped(conn: Connection) -> AsyncIterator[None]:
    """A connection that cannot be made ready is not left behind."""
    try:
        yield
    except BaseException:
        conn.terminate()
        raise


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
