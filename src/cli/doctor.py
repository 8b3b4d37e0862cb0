"""`postledger doctor`: is everything there that sending needs, and what to do where it is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click
from attrs import frozen

from ..config import Config, redact
from ..database import Blocks, Database, fetch_one, is_pooled
from ..database.migrate import check_hidden, check_version, installed_version
from ..errors import ConfigurationError, PostledgerError, UnavailableError
from ..ledger import senders
from ..ledger.documents import moment as write_time
from ..projections.lag import read_lag
from ..workers.providers import registry
from .connecting import opened, straight
from .exits import Exit, code_of
from .options import Command, Given
from .output import document, say
from .runner import Interrupts, run

sql = Blocks("postledger.cli", "doctor.sql")

OLDEST, NEWEST = 15, 18
HEARD_WITHIN = 5.0
QUEUE_FULL = 0.25
"""Share of the notification queue from which it is worth a word; when it is full, commits that notify fail."""
PROVIDER_WITHIN = 30.0


@frozen
class Check:
    """One thing that was looked at; `remedy` is None where it is well."""

    name: str
    ok: bool
    detail: str
    remedy: str | None = None
    code: Exit = Exit.OK

    def as_json(self) -> dict[str, Any]:
        """The public form."""
        return {"name": self.name, "ok": self.ok, "detail": self.detail, "remedy": self.remedy}


Look = Callable[[], Awaitable[str]]
"""Returns the detail; raises PostledgerError where something is wrong."""


@click.command(
    cls=Command,
    short_help="Check the installation; say what to do.",
    example="""
    postledger doctor
    postledger doctor --via "smtp://user:password@relay.example:587"
    """,
)
@click.option("--via", metavar="URL", help="A provider to try; else those of campaigns that are not at their end.")
@click.pass_obj
def doctor(given: Given, via: str | None) -> int:
    """Check database, schema, role, notifications and providers; say what to do about each.

    Nothing is sent: a provider is connected to and logged in, no more. Exit code 69: something cannot be reached, 78: a
    setting is wrong.
    """
    config = given.config()

    async def examine(interrupts: Interrupts) -> int:
        checks = [check async for check in _checks(config, via)]
        _show(given, checks)
        return next((check.code for check in checks if not check.ok), Exit.OK)

    return run(given, examine)


async def _checks(config: Config, via: str | None) -> AsyncIterator[Check]:
    try:
        async with _reached(config) as database:
            async for check in _database_checks(config, database, with_senders=via is None):
                yield check
    except PostledgerError as error:
        yield Check("connection", False, str(error), _REMEDIES["connection"], code_of(error))
    if via is not None:
        yield await _look("provider", lambda: _try_provider(via))


@asynccontextmanager
async def _reached(config: Config) -> AsyncIterator[Database]:
    """A named database as it is, a private one made ready as every command does."""
    if config.database is not None:
        yield Database(config.database, config.schema)
        return
    async with opened(config) as database:
        yield database


async def _database_checks(config: Config, database: Database, *, with_senders: bool) -> AsyncIterator[Check]:
    """Each needs the ones before it: the first that fails is the last."""
    listen = straight(config, database)
    looks: dict[str, Look] = {
        "connection": lambda: _try_connection(database),
        "version": lambda: _try_version(database),
        "encoding": lambda: _try_encoding(database),
        "schema": lambda: _try_schema(database),
        "role": lambda: _try_role(database),
        "epoch": lambda: _try_epoch(database),
        "blocks": lambda: _tell_lag(database),
        "webhooks": lambda: _tell_webhooks(database),
        "notifications": lambda: _try_notifications(database, listen),
    }
    for name, look in looks.items():
        check = await _look(name, look)
        yield check
        if not check.ok:
            return
    if with_senders:
        async with database.connection(label="doctor") as conn:
            urls = {row["name"]: await senders.read_url(conn, row["id"]) for row in await conn.fetch(sql.senders)}
        for name, url in urls.items():
            yield await _look("provider", partial(_try_provider, url, name))


_REMEDIES = {
    "connection": "start the server, or correct --database or its login; without it a private server is used",
    "version": f"use PostgreSQL {OLDEST} to {NEWEST}",
    "encoding": "create the database with ENCODING 'UTF8'",
    "schema": "run 'postledger migrate' as the database's owner, or give the login the role postledger_app",
    "epoch": "if this is the database that sends from now on: 'postledger migrate --new-epoch'",
    "role": "GRANT postledger_app TO the login, and grant nothing on the table events to either",
    "notifications": "behind a pooler name the server's own address with --listen",
    "provider": "correct the sender URL, or the relay",
}


async def _look(name: str, look: Look) -> Check:
    try:
        return Check(name, True, await look())
    except PostledgerError as error:
        return Check(name, False, str(error), _REMEDIES[name], code_of(error))


async def _try_connection(database: Database) -> str:
    async with database.connection(role=None, label="doctor") as conn:
        row = await fetch_one(conn, sql.server)
    return f"PostgreSQL {row['version']} at {redact(database.dsn)}"


async def _try_version(database: Database) -> str:
    async with database.connection(role=None, label="doctor") as conn:
        row = await fetch_one(conn, sql.server)
    if not OLDEST <= row["major"] <= NEWEST:
        raise ConfigurationError(f"PostgreSQL {row['version']} is none that Postledger is tested with")
    return str(row["version"])


async def _try_encoding(database: Database) -> str:
    async with database.connection(role=None, label="doctor") as conn:
        row = await fetch_one(conn, sql.server)
    if row["encoding"] != "UTF8":
        raise ConfigurationError(f"the database's encoding is {row['encoding']}, which cannot hold every name")
    return str(row["encoding"])


async def _try_schema(database: Database) -> str:
    async with database.connection(role=None, label="doctor") as conn:
        version = await installed_version(conn)
        if version is None:
            await check_hidden(conn, database.schema)
    check_version(version)
    return f"{database.schema}, version {version}"


async def _try_role(database: Database) -> str:
    async with database.connection(label="doctor") as conn:
        powers = await fetch_one(conn, sql.powers)
    if not powers["appends"]:
        raise ConfigurationError(f"the role {powers['role']} may not append to the log")
    if powers["changes"]:
        raise ConfigurationError(f"the role {powers['role']} may change the log, which is to be append-only")
    return f"{powers['role']} appends to the log and cannot change it"


async def _try_epoch(database: Database) -> str:
    async with database.connection(label="doctor") as conn:
        foreign = await conn.fetchval(sql.foreign_epoch)
        epoch = await conn.fetchval(sql.epoch)
    if foreign is not None:
        raise ConfigurationError(f"{foreign}: nothing is sealed, and workers refuse to work")
    return f"epoch {epoch} is this server's own"


async def _tell_lag(database: Database) -> str:
    """Nothing is wrong however far behind they are: workers, and whoever appends next, catch up."""
    async with database.connection(label="doctor") as conn:
        lag = await read_lag(conn)
    sealed = "nothing is sealed yet" if lag.block_no is None else f"block {lag.block_no} of {write_time(lag.sealed_at)}"
    if lag.oldest_in is not None:
        sealed += f", {lag.unsealed} events in none yet, the oldest since {lag.oldest_in.total_seconds():.1f} s"
    behind = [f"{name} is {blocks} blocks behind" for name, blocks in lag.behind.items() if blocks]
    return "; ".join([sealed, *behind])


async def _tell_webhooks(database: Database) -> str:
    """What cannot be read is kept, and what is not found may be somebody else's: a person should hear of either."""
    async with database.connection(label="doctor") as conn:
        row = await fetch_one(conn, sql.webhooks)
    if row["last_at"] is None:
        return "no provider has posted anything yet"
    told = [f"the last post came at {write_time(row['last_at'])}"]
    if row["faults"]:
        told.append(
            f"{row['faults']} have something unreadable in them ('postledger webhooks reprocess' after an update)"
        )
    if row["waiting"]:
        told.append(f"{row['waiting']} things said of mails that are not found yet ('postledger webhooks unlinked')")
    return "; ".join(told)


async def _try_notifications(database: Database, listen: Database) -> str:
    heard = asyncio.Event()
    async with (
        listen.connection(label="doctor listens", session=True) as ear,
        database.connection(label="doctor") as mouth,
    ):
        if is_pooled(ear):
            raise ConfigurationError(
                "a pooler in transaction mode is in the way: workers look every 2 s, and find a dead one by its lease"
            )
        full = await ear.fetchval(sql.queue_usage)
        if full >= QUEUE_FULL:
            raise ConfigurationError(
                f"the server's notification queue is {full:.0%} full: end the transaction that a listener has open"
            )
        channel = await ear.fetchval(sql.channel)
        await ear.add_listener(channel, lambda *_: heard.set())
        await mouth.execute(sql.notify, channel)
        try:
            async with asyncio.timeout(HEARD_WITHIN):
                await heard.wait()
        except TimeoutError:
            raise ConfigurationError("a notification was sent and not heard: workers will look every 2 s") from None
    return "heard"


async def _try_provider(url: str, name: str | None = None) -> str:
    provider = registry.make(url, concurrency=1)
    try:
        async with asyncio.timeout(PROVIDER_WITHIN):
            await provider.open()
    except TimeoutError:
        raise UnavailableError(f"{provider.name}: no answer within {PROVIDER_WITHIN:.0f} s") from None
    finally:
        await provider.close()
    return f"{name or redact(url)} is ready"


def _show(given: Given, checks: Sequence[Check]) -> None:
    if given.json:
        document({"checks": [check.as_json() for check in checks]})
        return
    for check in checks:
        say(f"{'ok   ' if check.ok else 'WRONG'} {check.name}: {check.detail}")
        if check.remedy:
            say(f"      do: {check.remedy}")
