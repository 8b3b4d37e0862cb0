"""Test sends: a campaign's letter to a few addresses, by its own sender, with no recipient touched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import structlog
from aiohttp import web
from attrs import frozen

from ...errors import ConfigurationError, UnavailableError
from ...ledger import campaigns, limits, samples, senders
from ...ledger.public import Id
from ...messages.addresses import normalise, parse_mailbox
from ...workers.providers import registry
from ...workers.providers.base import Envelope, NotBegun, Provider
from ...workers.providers.urls import redact
from ...workers.replies import classify
from ...workers.reply import Reply
from ..keys import POOL
from ..problems import Problem
from ..route import Route
from ..wire import answer, read_body, read_id
from .previews import compose, writer_of

log = structlog.get_logger(__name__)

MOST = 10
WITHIN = 45.0
"""Seconds for all of it."""


@frozen
class Trial:
    """Who gets the letter to look at, and with whose data."""

    to: tuple[str, ...] = limits.emails(MOST, repr=False)
    delivery_id: Id | None = None
    """Whose name and data it is filled in with, where none are given; without it those of the first recipient."""
    name: str | None = limits.text(998, least=0, example="Ann", default=None, repr=False)
    data: dict[str, Any] | None = limits.data(default=None)


@frozen
class Tried:
    """What became of the mail to one address."""

    email: str
    outcome: Literal["accepted", "refused", "unknown", "suppressed", "not_begun"]
    """not_begun: the relay was not reached, or did not let us in."""
    code: str | None
    """As in "550 5.1.1"."""
    reply: str | None
    """What the relay said, or what happened instead."""


@frozen
class Trials:
    """What became of each."""

    items: list[Tried]


async def try_out(request: web.Request) -> web.Response:
    """Sends the letter now. Recipients, counts and log stay as they are; whoever is suppressed gets no test either."""
    asked, campaign_id = await read_body(request, Trial), read_id(request)
    addresses = list(dict.fromkeys(normalise(one).full for one in asked.to))
    async with request.app[POOL].connection() as conn:
        campaign = await campaigns.read(conn, campaign_id)
        writer = await writer_of(request, conn, campaign_id)
        writer.tracked = None
        known = await samples.recipient(conn, campaign_id, asked.delivery_id)
        name = asked.name if asked.name is not None or known is None else known.name
        data = asked.data if asked.data is not None else (known.data if known is not None else {})
        people = [await samples.made_up(conn, one, name, known.key if known else None, data) for one in addresses]
        blocked = await samples.suppressed(conn, addresses)
        url = await senders.read_url(conn, campaign.settings.sender_id)
    sender = parse_mailbox(campaign.settings.mail_from).address
    envelopes = [
        Envelope(sender, one.email, compose(writer, campaign_id, one).content, f"{campaign_id}.{one.delivery_id}")
        for one in people
        if one.email not in blocked
    ]
    tried = {one.recipient: what for one, what in zip(envelopes, await send_all(url, envelopes), strict=True)}
    log.info("tested", campaign=campaign_id, mails=len(envelopes), suppressed=len(blocked))
    return answer(Trials([tried.get(one) or Tried(one, "suppressed", None, None) for one in addresses]))


async def send_all(url: str, envelopes: Sequence[Envelope]) -> list[Tried]:
    """By a provider of its own, one after the other. Raises Problem where no provider is made of the URL."""
    if not envelopes:
        return []
    try:
        provider = registry.make(url, concurrency=1)
    except ConfigurationError as error:
        raise Problem(
            "conflict", f"the sender cannot be used here: {redact(str(error))}", remedy="correct the sender"
        ) from None
    found: list[Tried] = []
    try:
        async with asyncio.timeout(WITHIN):
            await provider.open()
            for envelope in envelopes:
                found += [await _send(provider, envelope)]
    except (UnavailableError, ConfigurationError) as error:
        found += [_not_begun(one, redact(str(error))) for one in envelopes[len(found) :]]
    except TimeoutError:
        found += [_not_begun(one, "no time was left") for one in envelopes[len(found) :]]
    finally:
        await provider.close()
    return found


async def _send(provider: Provider, envelope: Envelope) -> Tried:
    try:
        reply = await provider.send(envelope, _allowed)
    except NotBegun as error:
        return _not_begun(envelope, error.reply.text)
    return _answered(envelope, reply)


async def _allowed() -> None:
    """Nobody but the caller has to be asked."""


def _answered(envelope: Envelope, reply: Reply) -> Tried:
    verdict = classify(reply)
    outcome: Literal["accepted", "refused", "unknown"] = "accepted" if verdict.accepted else "refused"
    if verdict.kind == "unknown":
        outcome = "unknown"
    return Tried(envelope.recipient, outcome, verdict.code, reply.text[:1000])


def _not_begun(envelope: Envelope, why: str) -> Tried:
    return Tried(envelope.recipient, "not_begun", None, why[:1000])


ROUTES = (
    Route(
        *("POST", "/v1/campaigns/{id}/test", try_out, "send", "Send the letter to a few addresses to look at"),
        body=Trial,
        answer=Trials,
        problems=("conflict",),
    ),
)
