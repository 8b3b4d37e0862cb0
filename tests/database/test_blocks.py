"""Every named SQL block compiles against the schema, as the role that runs it."""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

import pytest

from postledger.database import Blocks, Connection, Database

OWNER_BLOCKS = {
    "create_schema",
    "drop_invalid_index",
    "keep_secret",
    "try_lock_migrations",
    "prepare_login",
    "record_migration",
    "record_version",
}


def _packages(folder: Traversable, name: str) -> Iterator[tuple[str, str]]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith("__"):
            yield from _packages(entry, f"{name}.{entry.name}")
        elif entry.name.endswith(".sql") and entry.name != "schema.sql" and "migrations" not in name:
            yield name, entry.name


FILES = sorted(_packages(files("postledger"), "postledger"))


def test_there_are_blocks() -> None:
    assert ("postledger.ledger", "queue.sql") in FILES


@pytest.mark.parametrize(("package", "filename"), FILES)
async def test_blocks_compile(database: str, package: str, filename: str) -> None:
    blocks = Blocks(package, filename)
    assert blocks.statements
    async with Database(database).connection() as conn:
        for name, statement in blocks.statements.items():
            if name not in OWNER_BLOCKS:
                await _prepare(conn, filename, name, filled(statement))
            if "CREATE TEMPORARY TABLE" in statement:
                await conn.execute(statement)  # for the blocks behind it


@pytest.mark.parametrize(("package", "filename"), FILES)
def test_blocks_say_what_they_name(package: str, filename: str) -> None:
    statements = Blocks(package, filename).statements
    assert all(statements.values())
    assert not any("SELECT *" in statement for statement in statements.values())


def filled(statement: str) -> str:
    """A block with {holes} says above its statement what may be in each: `--   hole = example`."""
    examples = dict(re.findall(r"^--   (\w+) = (.+)$", statement, re.MULTILINE))
    if not examples:
        return statement
    body = re.sub(r"^--.*\n", "", statement, flags=re.MULTILINE)
    assert set(re.findall(r"\{(\w+)\}", body)) == set(examples), "each hole has an example"
    return body.format(**examples)


async def _prepare(conn: Connection, filename: str, name: str, statement: str) -> None:
    try:
        await conn.prepare(statement)
    except Exception as error:
        raise AssertionError(f"{filename}: {name}: {error}") from error
