"""`postledger work` and `migrate`: what runs a service."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import click
import structlog

from ..config import Config
from ..database import migrate as install
from ..embedded import running
from ..workers.loops import first_of
from ..workers.worker import Worker, WorkerOptions
from .connecting import opened, straight
from .exits import Exit
from .options import Command, Given, duration
from .output import document, say
from .runner import Interrupts, run

log = structlog.get_logger(__name__)

YEARS = 1e9


@click.command(
    cls=Command,
    short_help="Send what is due, until it is stopped.",
    example="""
    postledger work --database postgresql://mailer@db.example/shop
    postledger work --until-idle      for a timer: sends what is due, then ends
    """,
)
@click.option("--concurrency", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Sends at a time.")
@click.option(
    "--grace", type=duration(), default="30s", metavar="TIME", show_default=True, help="For sends under way at the end."
)
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do, now or later.")
@click.pass_obj
def work(given: Given, concurrency: int, grace: timedelta, until_idle: bool) -> int:
    """Send what is due, for all campaigns, until SIGTERM or Ctrl-C.

    Start as many as you like, on any machine. A worker that is stopped finishes what it has begun, within --grace, and
    gives the rest back; one that is killed is noticed by the others. A second signal leaves at once.
    """
    config = given.config()
    options = WorkerOptions(concurrency=concurrency, grace=grace.total_seconds(), base_url=config.url)

    async def serve(interrupts: Interrupts) -> int:
        async with opened(config) as database:
            worker = Worker(database, options, listen=straight(config, database))
            await worker.open()
            with interrupts.gently():
                await _work(worker, interrupts, until_idle=until_idle)
        if given.json:
            document({"outcomes": dict(worker.outcomes)})
        return Exit.OK

    return run(given, serve, level="info")


async def _work(worker: Worker, interrupts: Interrupts, *, until_idle: bool) -> None:
    working = asyncio.ensure_future(worker.run())
    log.info("working", worker=worker.session.worker, concurrency=worker.options.concurrency)
    try:
        ends = (interrupts.asked, worker.dispatcher.rest) if until_idle else (interrupts.asked,)
        await first_of(*ends, within=YEARS)
    finally:
        log.info("stopping", worker=worker.session.worker, grace=worker.options.grace)
        worker.stop()
        await working
    log.info("stopped", worker=worker.session.worker, **worker.outcomes)


@click.command(
    cls=Command,
    example="""
    postledger migrate --database postgresql://owner@db.example/shop
    """,
)
@click.pass_obj
def migrate(given: Given) -> int:
    """Bring the database to the schema of this version. Repeatable.

    Run it as the database's owner, who may create roles: everything else works as the role postledger_app, which cannot
    change the log.
    """
    config = given.config()

    async def bring(interrupts: Interrupts) -> int:
        version = await _installed(config)
        if given.json:
            document({"schema": config.schema, "version": version})
        else:
            say(f"schema {config.schema} is at version {version}")
        return Exit.OK

    return run(given, bring)


async def _installed(config: Config) -> int:
    if config.database is not None:
        return await install(config.database, schema=config.schema)
    async with running(config.data) as dsn:
        return await install(dsn, schema=config.schema)
