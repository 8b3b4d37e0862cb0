"""Brings a database to the schema of this version, once, whoever and however many ask for it."""

from __future__ import annotations

import asyncio
import os
import time
from importlib.resources import files

import asyncpg
import structlog

from ..errors import ConfigurationError, UnavailableError
from . import upgrade
from .connect import Connection, Database, quote_identifier
from .upgrade import sql

log = structlog.get_logger(__name__)

SCHEMA_VERSION = 3
SECRETS = ("address", "unsubscribe")

PATIENCE = 600.0
"""Seconds in which an upgrade must have got its locks, a little at a time."""

AGAIN = 0.1
"""Seconds between looks whether another migration is still under way."""

PAUSE = 1.0
"""Seconds between tries: what workers get done meanwhile is what they were kept from."""


async def installed_version(conn: Connection) -> int | None:
    """The version of the schema on the connection's search_path, or None. Needs no privilege on it."""
    if await conn.fetchval(sql.find_version_table) is None:
        return None
    version: int = await conn.fetchval(sql.read_version)
    return version


def check_version(version: int | None) -> None:
    """Raises ConfigurationError unless the schema is the one this code works with."""
    if version is None:
        raise ConfigurationError("the database has no Postledger schema yet: run 'postledger migrate'")
    if version > SCHEMA_VERSION:
        raise ConfigurationError(
            f"the database has schema version {version}, newer than the {SCHEMA_VERSION} of this program: "
            "upgrade Postledger on this machine"
        )
    if version < SCHEMA_VERSION:
        raise ConfigurationError(
            f"the database has schema version {version}, this program needs {SCHEMA_VERSION}: run 'postledger migrate'"
        )


async def migrate(dsn: str, *, schema: str = "postledger") -> int:
    """Installs the schema where there is none, upgrades an older one; returns its version.

    Repeatable, safe in many processes at once and while workers run; interrupted, it has happened or it has not.
    Raises ConfigurationError when the schema is newer than this program, the login may not create what is needed, or
    a pooler is in the way; UnavailableError when somebody holds on to the tables for too long.
    """
    async with Database(dsn, schema).connection(role=None, direct=True, label="migrate") as conn:
        await _check_encoding(conn)
        try:
            await _lock(conn, schema)
            version = await installed_version(conn)
            if version is None:
                await _install(conn, schema)
            elif version < SCHEMA_VERSION:
                await upgrade.prepare(conn, version, SCHEMA_VERSION)
                await _upgrade(conn, version)
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigurationError(
                f"this login may not install Postledger ({error}): use the database's owner with CREATEROLE, "
                "or let an administrator run: CREATE ROLE postledger_app; CREATE ROLE postledger_audit; "
                "CREATE ROLE postledger_enqueue; GRANT postledger_app TO the login"
            ) from error
        except asyncpg.DependentObjectsStillExistError as error:
            raise ConfigurationError(
                f"something of your own depends on what is to be renewed ({error.detail or error}): "
                "drop it, migrate, and create it again"
            ) from error
        version = await installed_version(conn)
        check_version(version)
        await conn.execute(sql.note_cluster)
        return SCHEMA_VERSION


async def check_hidden(conn: Connection, schema: str) -> None:
    """Raises ConfigurationError where there is a schema, but not for this login."""
    if await conn.fetchval(sql.hidden, schema):
        raise ConfigurationError(f"this login may not look into the schema {schema}: GRANT postledger_app TO it")


async def _check_encoding(conn: Connection) -> None:
    encoding = await conn.fetchval(sql.encoding)
    if encoding != "UTF8":
        raise ConfigurationError(
            f"the database's encoding is {encoding}, which cannot hold every name: create it with ENCODING 'UTF8' "
            "TEMPLATE template0"
        )


async def foreign_epoch(dsn: str, *, schema: str = "postledger") -> str | None:
    """Why this server cannot go on with the log's present epoch, or None: it was restored from a dump, say."""
    async with Database(dsn, schema).connection(role=None, direct=True, label="migrate") as conn:
        reason: str | None = await conn.fetchval(sql.foreign_epoch)
        return reason


async def begin_epoch(dsn: str, *, schema: str = "postledger") -> int:
    """The log goes on under a new epoch, whose number is returned: everything that was there comes first, once.

    Waits for all who write, and lets nobody write meanwhile. Repeated, it begins another.
    """
    async with Database(dsn, schema).connection(role=None, direct=True, label="migrate") as conn:
        epoch: int = await conn.fetchval(sql.begin_epoch)
        return epoch


async def _lock(conn: Connection, schema: str) -> None:
    while True:
        if await conn.fetchval(sql.try_lock_migrations, schema):
            return
        await asyncio.sleep(AGAIN)


def _schema() -> str:
    return files("postledger").joinpath("schema.sql").read_text(encoding="utf-8")


async def _install(conn: Connection, schema: str) -> None:
    async with conn.transaction(isolation="read_committed"):
        await conn.execute(sql.create_schema.format(schema=quote_identifier(schema)))
        await conn.execute(_schema())
        for name in SECRETS:
            await conn.execute(sql.keep_secret, name, *_padded_keys(os.urandom(32)))
        await conn.execute(sql.record_version, SCHEMA_VERSION)
        await conn.execute(sql.record_migration, SCHEMA_VERSION)


async def _upgrade(conn: Connection, version: int) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            async with conn.transaction(isolation="read_committed"):
                await upgrade.upgrade(conn, version, SCHEMA_VERSION, _schema())
            return
        except asyncpg.LockNotAvailableError as error:
            if time.monotonic() > until:
                raise UnavailableError(
                    "the upgrade does not get the tables for itself: a transaction has been open for long, end it "
                    f"(see pg_stat_activity.xact_start) and migrate again ({error})"
                ) from error
            log.warning("upgrade_waits", reason=str(error))
        await asyncio.sleep(PAUSE)


def _padded_keys(key: bytes) -> tuple[bytes, bytes]:
    """Inner and outer key of RFC 2104 for a block of 64 bytes."""
    block = key.ljust(64, b"\x00")
    return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)
