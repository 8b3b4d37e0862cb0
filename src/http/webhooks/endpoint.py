"""`/webhooks/{provider}`: the signature is the key; 2xx is said after the commit and never before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal

import structlog
from aiohttp import web
from attrs import frozen

from ...errors import UnavailableError
from ...ledger import feedback
from ...ledger.feedback import Post
from ...workers.link import Link
from ...workers.loops import forever
from ..fetching import Fetcher
from ..keys import CONFIG, DATABASE, POOL, SEALER
from ..problems import AGAIN_IN, Problem
from ..route import Route
from ..wire import answer
from .doors import STALE, Doors, Outside, Refused
from .intake import Intake
from .linker import Linker
from .notes import rows_of
from .reading import PARSERS, read
from .vocabulary import Proof

log = structlog.get_logger(__name__)

OUTSIDE: web.AppKey[Outside] = web.AppKey("outside", Outside)

_PROBLEMS = {401: "unauthorized", 403: "forbidden", 406: "not-acceptable"}


@frozen
class Reception:
    """What the endpoint works with."""

    doors: Doors
    intake: Intake
    linker: Linker


RECEPTION: web.AppKey[Reception] = web.AppKey("reception", Reception)


@frozen
class Taken:
    """The answer to a post that was taken: stored, or here already."""

    outcome: Literal["stored", "repeated"]


async def receive(request: web.Request) -> web.StreamResponse:
    """One post of a provider."""
    provider = request.match_info["provider"]
    reception = request.app[RECEPTION]
    if provider not in PARSERS:
        raise Problem("not-found", "no such provider", remedy=f"post to one of {', '.join(PARSERS)}")
    if not reception.doors.is_open(provider):
        # Not the provider's fault, and no reason to give its events up.
        log.error("webhook_not_configured", provider=provider, setting=f"POSTLEDGER_WEBHOOK_{provider.upper()}")
        raise _later("the webhook of this provider is not set up")
    raw = await request.read()
    try:
        admitted = await reception.doors.admit(provider, request.headers, raw)
        if admitted.confirm is not None:
            await _confirm(request, provider, admitted.proof, admitted.confirm)
        outcome = await reception.intake.take(_post(provider, raw, admitted.proof))
    except Refused as refused:
        log.warning("webhook_refused", provider=provider, status=refused.status, reason=refused.reason)
        raise _refusal(refused.status, refused.reason) from None
    except UnavailableError as error:
        log.warning("webhook_not_taken", provider=provider, reason=str(error)[:200])
        raise _later("this cannot be taken just now") from None
    if outcome in ("stale", "replayed"):
        log.warning("webhook_refused", provider=provider, status=STALE[provider], reason=outcome)
        raise _refusal(STALE[provider], "the signature is too old, or stood for another content before")
    return answer(Taken("stored" if outcome == "stored" else "repeated"))


async def _confirm(request: web.Request, provider: str, proof: Proof, url: str) -> None:
    """Once: what is here already was confirmed before it was written down."""
    async with request.app[POOL].connection() as conn:
        if await feedback.known(conn, provider, proof.digest):
            return
    await request.app[RECEPTION].doors.confirm(url)


def _post(provider: str, raw: bytes, proof: Proof) -> Post:
    rows, fault = rows_of(read(provider, raw), provider)
    if fault is not None:
        log.error("webhook_not_read", provider=provider, reason=fault[:200])
    return Post(provider, raw, proof.digest, proof.nonce, proof.signed_at, rows, fault)


def _refusal(status: int, reason: str) -> Problem:
    headers = {"WWW-Authenticate": 'Basic realm="postledger"'} if status == 401 else None
    return Problem(_PROBLEMS[status], reason, headers=headers)


def _later(detail: str) -> Problem:
    return Problem("unavailable", detail, remedy="post it again", headers={"Retry-After": AGAIN_IN})


async def receiving(app: web.Application) -> AsyncIterator[None]:
    """Posts are taken as long as the application runs; what waits is written down before it leaves."""
    own = None if OUTSIDE in app else Fetcher()
    sealer = app[SEALER]
    takes, links = Link(app[DATABASE], "http webhooks"), Link(app[DATABASE], "http feedback")
    linker = Linker(links, on_appended=sealer.note)
    intake = Intake(takes, on_appended=sealer.note, on_unlinked=linker.wake)
    app[RECEPTION] = Reception(Doors(app[CONFIG].webhooks, own or app[OUTSIDE]), intake, linker)
    loops = [
        asyncio.ensure_future(forever(intake.step, "http webhooks")),
        asyncio.ensure_future(forever(linker.step, "http feedback")),
    ]
    yield
    for loop in loops:
        loop.cancel()
    await asyncio.gather(*loops, return_exceptions=True)
    await intake.finish()
    for link in (takes, links):
        await link.close()
    if own is not None:
        await own.close()


ROUTES = (
    Route(
        "POST",
        "/webhooks/{provider}",
        receive,
        None,
        "A provider tells what became of mails; its signature is the key.",
        answer=Taken,
        consumes=("application/json", "text/plain"),
        problems=("not-found", "unauthorized", "forbidden", "not-acceptable", "too-large", "unavailable"),
    ),
)
