"""docs/transactional.md: its SQL and its Python do what the page says, with the rights that it gives."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from postledger.database import Connection
from tests.enqueue.conftest import Application

PAGE = (Path(__file__).parents[2] / "docs" / "transactional.md").read_text(encoding="utf-8")

SignUp = Callable[[asyncpg.Connection, str, str, str], Awaitable[int]]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


GRANT, TABLE, STATEMENT, TRIGGER = blocks("sql")
(PYTHON,) = blocks("python")


@pytest.fixture
async def shop(
    owner: Connection, login: str, welcome: int, application: Application
) -> AsyncIterator[asyncpg.Connection]:
    """The application's connection, by a login that has what the page gives it and no more."""
    await owner.execute(f"REVOKE postledger_enqueue FROM {login}")
    await owner.execute("SET search_path = public")
    await owner.execute(re.sub(r"\bshop\b", login, GRANT + TABLE))
    yield await application()
    await owner.execute(f"DROP OWNED BY {login}")


@pytest.fixture
def sign_up() -> SignUp:
    names: dict[str, Any] = {}
    exec(compile(PYTHON, "docs/transactional.md", "exec"), names)
    found: SignUp = names["sign_up"]
    return found


async def mails(app: Connection) -> list[tuple[Any, ...]]:
    rows = await app.fetch("SELECT recipient_key, email, name, data->>'town' FROM recipients ORDER BY delivery_id")
    return [tuple(row) for row in rows]


async def users(shop: asyncpg.Connection) -> int:
    return await shop.fetchval("SELECT count(*) FROM users")


async def test_the_statement(app: Connection, shop: asyncpg.Connection) -> None:
    await shop.execute(STATEMENT.replace("COMMIT", "ROLLBACK"))
    assert (await users(shop), await mails(app)) == (0, [])
    await shop.execute(STATEMENT)
    assert (await users(shop), await mails(app)) == (1, [("user:2", "ann@x.example", "Ann", "Ulm")])


async def test_the_trigger(app: Connection, owner: Connection, shop: asyncpg.Connection) -> None:
    await owner.execute(TRIGGER)
    insert = "INSERT INTO users (email, name, town) VALUES ($1, 'Ann', 'Ulm')"
    transaction = shop.transaction()
    await transaction.start()
    await shop.execute(insert, "ann@x.example")
    await transaction.rollback()
    with pytest.raises(asyncpg.PostgresError) as error:
        await shop.execute(insert, "no address")
    assert (error.value.sqlstate, error.value.column_name) == ("PL003", "email")
    assert (await users(shop), await mails(app)) == (0, [])
    await shop.execute(insert, "ann@x.example")
    assert (await users(shop), await mails(app)) == (1, [("user:3", "ann@x.example", "Ann", "Ulm")])


async def test_the_python(app: Connection, shop: asyncpg.Connection, sign_up: SignUp) -> None:
    made = await sign_up(shop, "ann@x.example", "Ann", "Ulm")
    assert await mails(app) == [(f"user:{made}", "ann@x.example", "Ann", "Ulm")]
    with pytest.raises(asyncpg.UniqueViolationError):
        await sign_up(shop, "ann@x.example", "Ann", "Bonn")
    with pytest.raises(asyncpg.PostgresError) as error:
        await sign_up(shop, "ann@bücher.example", "Ann", "Ulm")
    assert error.value.sqlstate == "PL003"
    transaction = shop.transaction()
    await transaction.start()
    await sign_up(shop, "bob@x.example", "Bob", "Ulm")
    await transaction.rollback()
    assert (await users(shop), len(await mails(app))) == (1, 1)


@pytest.mark.parametrize("code", sorted(set(re.findall(r"^\| (PL\d+) \|", PAGE, re.MULTILINE))))
async def test_the_errors(app: Connection, shop: asyncpg.Connection, code: str) -> None:
    await app.execute("SELECT draft_campaign('bulk', 'bulk', 1, 't', 'a@x.example', NULL, 'resend', 5, NULL, '1 h', 0)")
    calls = {"PL001": "'nothing', 'a@x.example'", "PL002": "'bulk', 'a@x.example'", "PL003": "'welcome', 'nobody'"}
    with pytest.raises(asyncpg.PostgresError) as error:
        await shop.execute(f"SELECT postledger.enqueue({calls[code]})")
    assert error.value.sqlstate == code
