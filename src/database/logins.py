"""Logins that work through a pooler: what we ask for at start-up is given to them for good."""

from __future__ import annotations

import asyncpg

from ..errors import ConfigurationError
from .blocks import Blocks
from .connect import Database, fetch_one, quote_identifier

sql = Blocks("postledger.database", "logins.sql")


async def prepare_login(database: Database, login: str) -> None:
    """Makes the app's role and our settings the login's own, in this database; repeatable.

    The connection is the owner's or an administrator's, on the server itself. Such a login serves one installation: its
    other sessions in this database begin in our schema too. Raises ConfigurationError.
    """
    async with database.connection(role=None, direct=True, label="migrate") as conn:
        who = await fetch_one(conn, sql.who)
        if who["login"] == login:
            raise ConfigurationError(
                f"{login} is the login that migrates, and has to stay the tables' owner: make another one for the "
                "pooler (CREATE ROLE name LOGIN)"
            )
        statement = sql.prepare_login.format(
            login=quote_identifier(login),
            database=quote_identifier(who["database"]),
            schema=quote_identifier(database.schema),
        )
        try:
            async with conn.transaction(isolation="read_committed"):
                await conn.execute(statement)
        except asyncpg.UndefinedObjectError as error:
            raise ConfigurationError(f"there is no login {login}: make it first (CREATE ROLE name LOGIN)") from error
        except asyncpg.InsufficientPrivilegeError as error:
            told = " ".join(statement.split())
            raise ConfigurationError(
                f"{who['login']} may not do this ({error}): let an administrator run: {told}"
            ) from error
