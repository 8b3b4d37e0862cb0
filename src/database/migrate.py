"""Brings a database to the schema of this version, once, whoever and however many ask for it."""

from __future__ import annotations

import os
import re
from importlib.resources import files

import asyncpg

from ..errors import ConfigurationError
from .blocks import Blocks
from .connect import Connection, Database, quote_identifier

sql = Blocks("postledger.database", "migrate.sql")

_ROLES = "-" * 115 + " roles\n"
_FUNCTION = re.compile(r"^CREATE FUNCTION .*?\$\$.*?\$\$;$", re.DOTALL | re.MULTILINE)
_VIEW = re.compile(r"^CREATE VIEW .*?;$", re.DOTALL | re.MULTILINE)

SCHEMA_VERSION = 2
SECRETS = ("address", "unsubscribe")


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


def _padded_keys(key: bytes) -> tuple[bytes, bytes]:
    """Inner and outer key of RFC 2104 for a block of 64 bytes."""
    block = key.ljust(64, b"\x00")
    return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)


def _schema() -> str:
    return files("postledger").joinpath("schema.sql").read_text(encoding="utf-8")


def code_of(schema: str) -> str:
    """What an upgrade installs anew: the functions and views of schema.sql, and all from its chapter on roles."""
    body, chapter, roles = schema.rpartition(_ROLES)
    functions = _FUNCTION.findall(body)
    return "\n".join([*(_replaced(one) for one in functions), *_VIEW.findall(body), chapter + roles])


def _replaced(function: str) -> str:
    return function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


async def _upgrade(conn: Connection, version: int) -> None:
    """Tables step by step, then all code as it is now; a function that tables use keeps its identity."""
    await conn.execute(sql.drop_code)
    for step in range(version + 1, SCHEMA_VERSION + 1):
        tables = files("postledger").joinpath("database", "migrations", f"{step:04}.sql")
        await conn.execute(tables.read_text(encoding="utf-8"))
        await conn.execute(sql.record_version, step)
        await conn.execute(sql.record_migration, step)
    await conn.execute(code_of(_schema()))


async def _install(conn: Connection, schema: str) -> None:
    await conn.execute(sql.create_schema.format(schema=quote_identifier(schema)))
    await conn.execute(_schema())
    for name in SECRETS:
        await conn.execute(sql.keep_secret, name, *_padded_keys(os.urandom(32)))
    await conn.execute(sql.record_version, SCHEMA_VERSION)
    await conn.execute(sql.record_migration, SCHEMA_VERSION)


async def migrate(dsn: str, *, schema: str = "postledger") -> int:
    """Installs the schema where there is none, upgrades an older one; returns its version. Repeatable and safe in many processes at once.

    Raises ConfigurationError when the schema is newer than this program, or the login may not create what is needed.
    """
    database = Database(dsn, schema)
    async with database.connection(role=None, label="migrate") as conn:
        try:
            async with conn.transaction():
                await conn.execute(sql.lock_migrations, schema)
                version = await installed_version(conn)
                if version is None:
                    await _install(conn, schema)
                    version = SCHEMA_VERSION
                elif version < SCHEMA_VERSION:
                    await _upgrade(conn, version)
                    version = SCHEMA_VERSION
        except asyncpg.InsufficientPrivilegeError as error:
            raise ConfigurationError(
                f"this login may not install Postledger ({error}): use the database's owner with CREATEROLE, "
                "or let an administrator run: CREATE ROLE postledger_app; CREATE ROLE postledger_audit; "
                "GRANT postledger_app TO the login"
            ) from error
        check_version(version)
        return version
