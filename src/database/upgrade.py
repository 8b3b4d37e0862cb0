"""Brings an older schema up while workers run: long work beforehand, then one short transaction."""

from __future__ import annotations

import re
from importlib.resources import files
from importlib.resources.abc import Traversable

from .blocks import Blocks
from .connect import Connection

sql = Blocks("postledger.database", "migrate.sql")

_ROLES = "-" * 115 + " roles\n"
_FUNCTION = re.compile(r"^CREATE FUNCTION .*?\$\$.*?\$\$;$", re.DOTALL | re.MULTILINE)
_VIEW = re.compile(r"^CREATE VIEW .*?;$", re.DOTALL | re.MULTILINE)


async def prepare(conn: Connection, version: int, target: int) -> None:
    """Builds what may take long, in no transaction, so that nobody waits for it. What was interrupted begins anew."""
    for index in await conn.fetch(sql.find_invalid_indexes):
        await conn.execute(sql.drop_invalid_index.format(index=index["name"]))
    for step in range(version + 1, target + 1):
        if _step(f"{step:04}.before.sql").is_file():
            for statement in Blocks("postledger.database", f"migrations/{step:04}.before.sql").statements.values():
                await conn.execute(statement)


async def upgrade(conn: Connection, version: int, target: int, schema: str) -> None:
    """In a transaction: tables step by step, then all code as it is now in `schema`, the text of schema.sql.

    Raises LockNotAvailableError rather than make workers wait for long: then it is to be tried again.
    """
    await conn.execute(sql.wait_little)
    await conn.execute(sql.lock_tables)
    await conn.execute(sql.drop_views)
    for step in range(version + 1, target + 1):
        await conn.execute(_step(f"{step:04}.sql").read_text(encoding="utf-8"))
        await conn.execute(sql.record_version, step)
        await conn.execute(sql.record_migration, step)
    body, chapter, roles = schema.rpartition(_ROLES)
    functions = "\n".join(_replaced(one) for one in _FUNCTION.findall(body))
    await conn.execute(sql.create_beside)
    await conn.execute(functions)
    await conn.execute(sql.drop_functions)
    await conn.execute("\n".join([functions, *_VIEW.findall(body), chapter + roles]))
    await conn.execute(sql.tell_workers)


def _replaced(function: str) -> str:
    return function.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)


def _step(name: str) -> Traversable:
    return files("postledger").joinpath("database", "migrations", name)
