"""Writing a campaign down: sender, letter, people and start, all of it or nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import asyncpg
from attrs import evolve, frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import DataError
from . import campaigns, contacts, scheduling, senders
from .audience import staging
from .audience.report import Report
from .campaigns import Campaign, Settings, Source
from .moments import short
from .senders import Rate

T = TypeVar("T")

sql = Blocks("postledger.ledger", "writing.sql")

OFF = timedelta.max
"""A length of time that somebody said is not to count; None is one that was not said."""

MANY = 100_000
"""Accepted rows after which the planner's statistics are renewed."""


NUMBERS = ("unknown", "attempts", "give_up", "priority", "expires", "missed_after", "max_errors", "track")


@frozen
class Order:
    """What is to be sent. None means: not said, so an existing campaign's own value stands, or the default."""

    name: str
    mail_from: str
    sender_url: str
    source: Source
    unknown: str | None = None
    attempts: int | None = None
    give_up: timedelta | None = None
    priority: int | None = None
    expires: timedelta | None = None
    missed_after: timedelta | None = None
    max_errors: int | None = None
    track: tuple[str, ...] | None = None
    at: datetime | None = None
    rate: Rate | Literal["off"] | None = None
    """The sender's: whoever says one changes it for all campaigns through it."""
    list: str | None = None
    """The list that it goes to, whose unsubscriptions it obeys; None: it goes to no list."""
    unit: str = "line"
    """What a row of the audience is called."""
    kind: Literal["bulk", "standing"] = "bulk"

    def settings(self, base: Settings, sender_id: int, list_id: int | None) -> Settings:
        """`base` with all that was said. A limit of attempts that somebody asks for also ends transient replies."""
        said = {name: getattr(self, name) for name in NUMBERS}
        if self.attempts is not None:
            said["max_deferred"] = self.attempts
        known: dict[str, Any] = {
            name: None if value == OFF else value for name, value in said.items() if value is not None
        }
        return evolve(base, mail_from=self.mail_from, sender_id=sender_id, list_id=list_id, **known)


@frozen
class Written:
    """What a campaign's writing down came to."""

    campaign_id: int
    is_new: bool
    report: Report


async def write_down(conn: Connection, order: Order, import_id: int, *, variables: Collection[str]) -> Written:
    """One transaction: the staged people of `import_id` belong to the campaign, which has started if it was a draft, or
    is scheduled where the order says when. One that was scheduled before stays so.

    `conn` holds the import and is in no transaction. `variables`: what the letter cannot do without. Raises DataError
    where the campaign of this name is another one, is cancelled, has nobody to write to, or where no recipient has
    a variable; ConflictError (PL002) when somebody cancels it meanwhile. Nothing is changed then.
    """
    try:
        return await _commit(conn, order, import_id, variables)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "campaigns_name_generation_key":
            raise
    return await _commit(conn, order, import_id, variables)  # a twin was first: now it is there to be found


async def draft(conn: Connection, order: Order) -> tuple[int, bool]:
    """The campaign alone, without people and not started: its id, and whether it is new.

    One of this name that has not begun becomes what the order says; one that has begun must be it. Raises DataError.
    """
    try:
        return await _draft(conn, order)
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "campaigns_name_generation_key":
            raise
    return await _draft(conn, order)  # as in write_down


async def _draft(conn: Connection, order: Order) -> tuple[int, bool]:
    async with conn.transaction():
        campaign, is_new = await _drafted(conn, order)
        if order.rate is not None:
            await senders.set_rate(conn, campaign.settings.sender_id, None if order.rate == "off" else order.rate)
    return campaign.id, is_new


async def check_time(conn: Connection, order: Order) -> None:
    """Whether the moment of a new campaign is to come: asked before the people are read. Raises DataError."""
    if order.at is not None and await campaigns.find_named(conn, order.name) is None:
        await scheduling.check_to_come(conn, order.at)


async def rehearse(
    conn: Connection,
    order: Order,
    import_id: int,
    *,
    variables: Collection[str],
    look: Callable[[Written], Awaitable[T]],
) -> T:
    """All that `write_down` would do, then `look` at it, then undone."""
    transaction = conn.transaction()
    await transaction.start()
    try:
        return await look(await _write(conn, order, import_id, variables))
    finally:
        await transaction.rollback()


async def go_on(conn: Connection, campaign_id: int) -> bool:
    """Resumes a campaign that is paused, for whatever reason; whether it was.

    A transaction of its own: Resumed needs the campaign's exclusive lock, and people are added under the shared one, so
    that workers can settle meanwhile.
    """
    if (await campaigns.read(conn, campaign_id)).status != "paused":
        return False
    async with conn.transaction():
        await conn.execute(scheduling.sql.lock, campaign_id)
        paused = (await campaigns.read(conn, campaign_id)).status == "paused"
        if paused:
            await campaigns.change(conn, campaign_id, "Resumed")
    return paused


async def _commit(conn: Connection, order: Order, import_id: int, variables: Collection[str]) -> Written:
    async with conn.transaction():
        written = await _write(conn, order, import_id, variables)
        await staging.finish(conn, import_id)
    return written


async def _write(conn: Connection, order: Order, import_id: int, variables: Collection[str]) -> Written:
    campaign, is_new = await _drafted(conn, order)
    campaign_id = campaign.id
    counts = dict(await fetch_one(conn, campaigns.sql.enqueue_import, campaign_id, import_id))
    report = await staging.read_report(conn, import_id, counts, order.unit)
    await _check_people(conn, campaign_id, report, variables)
    if order.rate is not None:  # at the end: others who write through this sender wait for it from now on
        await senders.set_rate(conn, campaign.settings.sender_id, None if order.rate == "off" else order.rate)
    if order.at is not None and campaign.status in scheduling.NOT_BEGUN:
        await scheduling.reschedule(conn, campaign, order.at)
    elif campaign.status == "draft":
        await campaigns.change(conn, campaign_id, "Started")
    return Written(campaign_id, is_new, report)


async def _drafted(conn: Connection, order: Order) -> tuple[Campaign, bool]:
    """The campaign of the order's name, which is what the order says; whether it is new."""
    sender_id = await _sender(conn, order.sender_url)
    list_id = None if order.list is None else await contacts.find_list(conn, order.list)
    found = await campaigns.find_named(conn, order.name)
    if found is None:
        settings = order.settings(Settings(order.name, order.mail_from, kind=order.kind), sender_id, list_id)
        return await _locked(conn, await campaigns.draft(conn, settings, order.source)), True
    campaign = await _locked(conn, found)
    await _agree(conn, campaign, order, order.settings(campaign.settings, sender_id, list_id))
    return await campaigns.read(conn, found), False


async def _sender(conn: Connection, url: str) -> int:
    shown, secret = senders.split_secret(url)
    known: int | None = await conn.fetchval(sql.same_sender, shown, secret)
    return known if known is not None else await senders.keep(conn, url)


async def _locked(conn: Connection, campaign_id: int) -> Campaign:
    """The campaign; one that has not begun is locked first and read after that."""
    campaign = await campaigns.read(conn, campaign_id)
    if campaign.status not in scheduling.NOT_BEGUN:
        return campaign
    await conn.execute(scheduling.sql.lock, campaign_id)
    return await campaigns.read(conn, campaign_id)


async def _agree(conn: Connection, old: Campaign, order: Order, settings: Settings) -> None:
    """The campaign of this name must be the one that is meant; a draft becomes it."""
    if old.status == "cancelled":
        raise DataError(f'campaign "{order.name}" is cancelled and takes nobody any more: choose another --name')
    if old.settings.kind != order.kind:
        who = "applications fill with enqueue()" if order.kind == "bulk" else "'postledger send' fills"
        raise DataError(f'campaign "{order.name}" is a {old.settings.kind} one, which {who}: choose another --name')
    begun = old.status not in scheduling.NOT_BEGUN
    if order.at is not None and begun and order.at != old.starts_at:
        since = "" if old.started_at is None else f" at {short(old.started_at)}"
        raise DataError(f'campaign "{order.name}" has begun{since}: leave --at out, or choose another --name')
    fields = differences(old, settings, order.source)
    if not fields:
        return
    if old.status == "draft":
        await campaigns.redraft(conn, old.id, settings, order.source, fields)
        return
    differ = ", ".join(FLAGS.get(field, field) for field in fields)
    if not begun:
        raise DataError(
            f'campaign "{order.name}" is scheduled with another {differ}: give what it was written down with, or first '
            f"take it back with 'postledger campaign schedule {old.id} --off'"
        )
    raise DataError(
        f'campaign "{order.name}" has begun with another {differ}: give what it began with, or choose another --name'
    )


FLAGS = {
    "mail_from": "--from",
    "sender_id": "--via",
    "subject": "--subject",
    "html": "--html",
    "text": "--text",
    "list_id": "--list",
    "unknown": "--unknown",
    "attempts": "--attempts",
    "give_up": "--give-up",
    "priority": "--priority",
    "expires": "--expires",
    "missed_after": "--missed",
    "max_errors": "--max-errors",
    "track": "--track",
}


def differences(old: Campaign, settings: Settings, source: Source) -> list[str]:
    """The names of all in which a campaign differs from what is asked for now."""
    numbers = [name for name in NUMBERS if name != "unknown" and getattr(old.settings, name) != getattr(settings, name)]
    return campaigns.differences(old, settings, source) + numbers


async def _check_people(conn: Connection, campaign_id: int, report: Report, variables: Collection[str]) -> None:
    if not await conn.fetchval(sql.has_recipients, campaign_id):
        first = next((f": {report.unit} {line.line}: {line.reason}" for line in report.lines), "")
        rows = f"none of the {report.rows:,} rows can be written to" if report.rows else "there are no rows"
        raise DataError(f"nobody to write to: {rows}{first}")
    missing = [row["name"] for row in await conn.fetch(sql.never_given, campaign_id, sorted(variables))]
    if missing:
        names = ", ".join(f"{{{{ {name} }}}}" for name in missing)
        raise DataError(
            f"the letter uses {names}, which no recipient's data has: add a column of that name, or correct the letter"
        )


async def analyze(conn: Connection) -> None:
    """Renews the planner's statistics; on a connection of the tables' owner, or it is a warning."""
    await conn.execute(sql.analyze)
