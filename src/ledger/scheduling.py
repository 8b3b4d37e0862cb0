"""When a campaign begins, and until when it rests: scheduled, started by hand, paused for a while."""

from __future__ import annotations

from datetime import datetime, timedelta

from attrs import evolve

from ..database import Blocks, Connection
from ..errors import ConflictError, DataError
from ..events.text import write_moment
from . import campaigns
from .campaigns import Campaign
from .moments import short

sql = Blocks("postledger.ledger", "scheduling.sql")

NOT_BEGUN = ("draft", "scheduled")
OPERATOR = "operator"


async def schedule(conn: Connection, campaign_id: int, at: datetime | None) -> bool:
    """The campaign starts by itself at this moment, or no more (None). False: that was so already.

    Raises ConflictError where it has begun, DataError where the moment is past or nobody is there to write to.
    """
    async with conn.transaction():
        campaign = await _locked(conn, campaign_id)
        if campaign.status not in NOT_BEGUN:
            raise ConflictError(f"{_named(campaign)} is {campaign.status}: only what has not begun can be scheduled")
        if at is not None:
            await _check_people(conn, campaign)
        return await reschedule(conn, campaign, at)


async def reschedule(conn: Connection, campaign: Campaign, at: datetime | None) -> bool:
    """The same for a draft or a scheduled campaign that this transaction has locked."""
    planned = campaign.starts_at if campaign.status == "scheduled" else None
    if planned == at:
        return False
    if at is not None:
        await check_to_come(conn, at)
    if planned is not None:
        await campaigns.change(conn, campaign.id, "Unscheduled")
    if at is not None:
        await campaigns.change(conn, campaign.id, "Scheduled", {"due_at": write_moment(at)})
    return True


async def set_missed(conn: Connection, campaign_id: int, missed_after: timedelta | None) -> bool:
    """How late a start may be before it is held; None: however late. False: that was so already."""
    async with conn.transaction():
        campaign = await _locked(conn, campaign_id)
        if campaign.settings.missed_after == missed_after:
            return False
        if campaign.status not in NOT_BEGUN:
            raise ConflictError(f"{_named(campaign)} is {campaign.status}: a start can only be missed before it")
        settings = evolve(campaign.settings, missed_after=missed_after)
        await campaigns.redraft(conn, campaign_id, settings, campaign.source, ["missed_after"])
    return True


async def start(conn: Connection, campaign_id: int) -> bool:
    """Begins now, whatever was scheduled. False: it is being sent already."""
    async with conn.transaction():
        campaign = await _locked(conn, campaign_id)
        if campaign.status == "sending":
            return False
        if campaign.status not in NOT_BEGUN:
            remedy = ": 'postledger campaign resume' goes on with it" if campaign.status == "paused" else ""
            raise ConflictError(f"{_named(campaign)} is {campaign.status}, it cannot be started{remedy}")
        await _check_people(conn, campaign)
        await campaigns.change(conn, campaign_id, "Started", {"by": OPERATOR})
    return True


async def pause(conn: Connection, campaign_id: int, until: datetime | None) -> bool:
    """Nothing new begins until this moment, or until somebody resumes it (None). False: that was so already.

    A campaign that is paused, but would resume at another moment, is paused anew: who says so means it.
    """
    async with conn.transaction():
        campaign = await _locked(conn, campaign_id)
        if campaign.status == "paused" and campaign.resume_at == until:
            return False
        if campaign.status not in ("sending", "paused"):
            raise ConflictError(f"{_named(campaign)} is {campaign.status}: it cannot be paused")
        if until is not None:
            await check_to_come(conn, until, "leave it out to pause until somebody resumes it")
        if campaign.status == "paused":
            await campaigns.change(conn, campaign_id, "Resumed", {"by": OPERATOR})
        body = {} if until is None else {"resume_at": write_moment(until)}
        await campaigns.change(conn, campaign_id, "Paused", {"reason": OPERATOR, **body})
    return True


async def _locked(conn: Connection, campaign_id: int) -> Campaign:
    """The campaign, alone for this transaction; read after it is."""
    await campaigns.read(conn, campaign_id)
    await conn.execute(sql.lock, campaign_id)
    return await campaigns.read(conn, campaign_id)


async def check_to_come(conn: Connection, at: datetime, otherwise: str = "leave it out to begin now") -> None:
    """By the database's clock, which is the one that decides. Raises DataError."""
    now: datetime = await conn.fetchval(sql.now)
    if at <= now:
        raise DataError(
            f"{short(at)} is past, the database's clock says {short(now)}: give a moment to come, or {otherwise}"
        )


async def _check_people(conn: Connection, campaign: Campaign) -> None:
    if campaign.settings.kind == "bulk" and not await conn.fetchval(sql.has_recipients, campaign.id):
        raise DataError(f"{_named(campaign)} has nobody to write to: add people with 'postledger send --name ...'")


def _named(campaign: Campaign) -> str:
    return f'campaign "{campaign.settings.name}"'
