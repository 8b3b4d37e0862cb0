"""`postledger serve` and `up`: the HTTP service, and the service with workers in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import click
import structlog

from ..config import Config
from ..database import Database
from ..http.app import make_app
from ..http.server import serving
from ..ledger import access
from ..ledger.sealing import seal_all
from ..workers.loops import first_of
from ..workers.worker import Worker, WorkerOptions
from .connecting import opened, straight
from .exits import Exit
from .options import Command, Given, duration
from .output import document, note, say
from .runner import Interrupts, run

log = structlog.get_logger(__name__)

YEARS = 1e9
_GRACE_HELP = "For requests and sends under way at the end."


@click.command(
    cls=Command,
    short_help="The HTTP API, until it is stopped.",
    example="""
    postledger serve --database postgresql://mailer@db.example/shop --http 0.0.0.0:8025 --url https://mail.shop.example
    curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8025/v1/campaigns
    """,
)
@click.option("--grace", type=duration(), default="30s", metavar="TIME", show_default=True, help=_GRACE_HELP)
@click.pass_obj
def serve(given: Given, grace: timedelta) -> int:
    """Answer the HTTP API, webhooks and unsubscribe links at --http, until SIGTERM or Ctrl-C; send nothing.

    Workers are processes of their own (`postledger work`), or in this one with `postledger up`. On a private database
    that has no API key yet a first one is made and shown, once. A restart of the database ends nothing: until it is
    back, requests are answered with 503.
    """
    config = given.config()

    async def main(interrupts: Interrupts) -> int:
        async with opened(config) as database, _served(config, database, grace) as url:
            with interrupts.gently():
                await _announce(given, config, database, url)
                await interrupts.asked.wait()
            log.info("stopping", grace=grace.total_seconds())
        return Exit.OK

    return run(given, main, level="info")


@click.command(
    cls=Command,
    short_help="The HTTP API and workers in one process.",
    example="""
    postledger up
    postledger keys create --scope send --scope read
    """,
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Sends at a time.")
@click.option("--grace", type=duration(), default="30s", metavar="TIME", show_default=True, help=_GRACE_HELP)
@click.pass_obj
def up(given: Given, concurrency: int, grace: timedelta) -> int:
    """`serve` and `work` in one: with no database named, on a private PostgreSQL that is started and stopped for you.

    Where a database is named that has no schema yet, it is installed. More workers may run beside it.
    """
    config = given.config()
    options = WorkerOptions(concurrency=concurrency, grace=grace.total_seconds(), base_url=config.url)

    async def main(interrupts: Interrupts) -> int:
        async with opened(config, install=True) as database:
            worker = Worker(database, options, listen=straight(config, database))
            await worker.open()
            async with _working(worker) as over, _served(config, database, grace) as url:
                with interrupts.gently():
                    await _announce(given, config, database, url)
                    await first_of(interrupts.asked, over, within=YEARS)
                log.info("stopping", grace=grace.total_seconds())
                worker.stop()  # both end at once, within one grace
        return Exit.OK

    return run(given, main, level="info")


@asynccontextmanager
async def _served(config: Config, database: Database, grace: timedelta) -> AsyncIterator[str]:
    app = make_app(config, database, listen=straight(config, database))
    async with serving(app, config.http, grace=grace.total_seconds()) as url:
        log.info("serving", url=url)
        yield url
    log.info("stopped")


@asynccontextmanager
async def _working(worker: Worker) -> AsyncIterator[asyncio.Event]:
    """The worker works inside the block; yields what is set when it has ended by itself."""
    over = asyncio.Event()
    working = asyncio.ensure_future(worker.run())
    working.add_done_callback(lambda _: over.set())
    log.info("working", worker=worker.session.worker, concurrency=worker.options.concurrency)
    try:
        yield over
    finally:
        worker.stop()
        await working


async def _announce(given: Given, config: Config, database: Database, url: str) -> None:
    """Where it is, and the first key of a private database, which nobody else is shown."""
    key = await _first_key(database) if config.database is None else None
    if given.json:
        document({"url": url} if key is None else {"url": url, "key": key, "scopes": list(access.SCOPES)})
    elif key is not None:
        say(f"the first API key, shown this once: {key}")
        note("it opens everything; others: postledger keys create --scope send")
    note(f"listening on {url}")


async def _first_key(database: Database) -> str | None:
    async with database.connection(label="serve") as conn:
        key = await access.create_first(conn)
        if key is not None:
            await seal_all(conn)
    return key
