"""`postledger work` and `migrate`: what runs a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import click
import structlog

from ..config import read_address
from ..database import Database, begin_epoch, foreign_epoch, prepare_login
from ..database import migrate as install
from ..embedded import running
from ..workers.loops import first_of
from ..workers.worker import Worker, WorkerOptions
from .connecting import opened, straight
from .exits import Exit
from .options import Command, Given, duration
from .output import document, note, say
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
@click.option("--until-idle", is_flag=True, help="End when nothing is left to do but what is scheduled or paused.")
@click.option("--metrics", metavar="HOST:PORT", help="Where Prometheus reads what this process measures: /metrics.")
@click.pass_obj
def work(given: Given, concurrency: int, grace: timedelta, until_idle: bool, metrics: str | None) -> int:
    """Send what is due, for all campaigns, until SIGTERM or Ctrl-C.

    Start as many as you like, on any machine. A worker that is stopped finishes what it has begun, within --grace, and
    gives the rest back; one that is killed is noticed by the others. A second signal leaves at once.
    """
    config = given.config()
    address = None if metrics is None else read_address("--metrics", metrics)
    options = WorkerOptions(concurrency=concurrency, grace=grace.total_seconds(), base_url=config.url)

    async def serve(interrupts: Interrupts) -> int:
        async with _measured(address), opened(config) as database:
            worker = Worker(database, options, listen=straight(config, database))
            await worker.open()
            with interrupts.gently():
                await _work(worker, interrupts, until_idle=until_idle)
        if given.json:
            document({"outcomes": dict(worker.outcomes)})
        return Exit.OK

    return run(given, serve, level="info")


@asynccontextmanager
async def _measured(address: tuple[str, int] | None) -> AsyncIterator[None]:
    if address is None:
        yield
        return
    from ..http.metrics import serving_metrics  # a worker that nobody measures need not load a web server

    async with serving_metrics(address) as url:
        log.info("measured", url=f"{url}/metrics")
        yield


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
    postledger migrate --login mailer      so that this login works through a pooler
    """,
)
@click.option(
    "--login",
    "logins",
    metavar="NAME",
    multiple=True,
    help="A login for a pooler: what that would refuse at start-up becomes the login's own setting. May be repeated.",
)
@click.option(
    "--new-epoch",
    is_flag=True,
    help="After a restore from a dump, or another way to a new server: this is the database that sends from now on.",
)
@click.pass_obj
def migrate(given: Given, logins: tuple[str, ...], new_epoch: bool) -> int:
    """Bring the database to the schema of this version. Repeatable, also while workers run.

    Run it as the database's owner, who may create roles: everything else works as the role postledger_app, which cannot
    change the log. Workers of an older version end in order when the schema has changed.
    """
    config = given.config()

    async def bring(interrupts: Interrupts) -> int:
        if config.database is not None:
            shown = await _bring(config.database, config.schema, logins, new_epoch=new_epoch)
        else:
            async with running(config.data) as dsn:
                shown = await _bring(dsn, config.schema, logins, new_epoch=new_epoch)
        if given.json:
            document(shown)
        else:
            say(f"schema {shown['schema']} is at version {shown['version']}")
        if "foreign" in shown:
            note(f"note: {shown['foreign']}; if it sends from now on: postledger migrate --new-epoch")
        return Exit.OK

    return run(given, bring)


async def _bring(dsn: str, schema: str, logins: Sequence[str], *, new_epoch: bool) -> dict[str, Any]:
    version = await install(dsn, schema=schema)
    for login in logins:
        await prepare_login(Database(dsn, schema), login)
    foreign = await foreign_epoch(dsn, schema=schema)
    if new_epoch and foreign is not None:
        await begin_epoch(dsn, schema=schema)
        foreign = None
    shown = {"schema": schema, "version": version}
    return shown if foreign is None else shown | {"foreign": foreign}
