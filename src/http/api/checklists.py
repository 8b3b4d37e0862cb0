"""Checklists: what stands between a campaign and its start, and what starting it would do."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import Literal

from aiohttp import web
from attrs import frozen

from ...errors import ConfigurationError
from ...ledger import campaigns, limits, readiness, senders
from ...ledger.campaigns import Campaign
from ...ledger.public import Id
from ...ledger.readiness import Readiness
from ...ledger.senders import Rate
from ...messages.checklist import Problem as Objection
from ...workers.providers import registry
from ...workers.providers.urls import redact
from ..keys import CONFIG, POOL
from ..route import Route
from ..wire import answer, read_id, read_query

BIGGEST = 2**31


@frozen
class Expectation:
    """What somebody thinks that would happen."""

    expected_audience: int | None = limits.number(0, BIGGEST, default=None)
    """An error is added where not so many people are written down."""


@frozen
class Item:
    """Something that can be said against starting it."""

    field: str
    severity: Literal["error", "warning"]
    """error: nothing should be sent. warning: it may, and somebody should know."""
    reason: str
    remedy: str


@frozen
class Checklist:
    """What would happen, and what stands against it."""

    campaign_id: Id
    status: str
    version: int
    ready: bool
    """No error stands against it."""
    audience: int
    """All who are written down: what `expected_audience` of start is compared with."""
    pending: int
    """Who would get a mail."""
    skipped: int
    """Who will not: suppressed, or unsubscribed."""
    variables: list[str]
    """What the letter cannot do without, of each recipient."""
    takes: timedelta | None
    """At the sender's rate; null: it has none."""
    items: list[Item]


async def checklist(request: web.Request) -> web.Response:
    """A dry run: everything is looked at as it is, nothing is changed, and no relay is asked."""
    asked, campaign_id = read_query(request, Expectation), read_id(request)
    async with request.app[POOL].connection() as conn:
        campaign = await campaigns.read(conn, campaign_id)
        found = await readiness.look(conn, campaign, request.app[CONFIG].url)
        url = await senders.read_url(conn, campaign.settings.sender_id)
    objections = [*_sender(url), *_audience(asked.expected_audience, found.audience), *found.problems]
    objections.sort(key=lambda one: one.severity)
    return answer(
        Checklist(
            campaign_id=Id(campaign.id),
            status=campaign.status,
            version=campaign.version,
            ready=not any(one.severity == "error" for one in objections),
            audience=found.audience,
            pending=found.pending,
            skipped=found.skipped,
            variables=list(found.variables),
            takes=_takes(campaign, found),
            items=[Item(one.field, one.severity, one.reason, one.remedy) for one in objections],
        )
    )


def _sender(url: str) -> list[Objection]:
    try:
        registry.make(url, concurrency=1)
    except ConfigurationError as error:
        return [Objection("sender", redact(str(error)), "correct the sender, or set its variable where workers run")]
    return []


def _audience(expected: int | None, found: int) -> list[Objection]:
    if expected is None or expected == found:
        return []
    return [Objection("expected_audience", f"{expected}, and {found} are written down", "look at the recipients")]


def _takes(campaign: Campaign, found: Readiness) -> timedelta | None:
    if campaign.rate is None:
        return None
    rate = Rate.read(campaign.rate)
    return timedelta(seconds=ceil(found.pending * rate.per.total_seconds() / rate.count))


ROUTES = (
    Route(
        *("GET", "/v1/campaigns/{id}/checklist", checklist, "read", "See what stands against starting it"),
        query=Expectation,
        answer=Checklist,
        also=("send",),
    ),
)
