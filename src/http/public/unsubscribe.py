"""The link that takes somebody off: GET asks, POST does it at once (RFC 8058)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from email.parser import BytesParser
from functools import wraps
from urllib.parse import parse_qsl

import structlog
from aiohttp import web
from attrs import frozen

from ...errors import PostledgerError
from ...ledger import readers
from ...ledger.readers import Channel, Reader
from ...messages.unsubscribe import InvalidToken, read_token
from ..keys import POOL, SEALER
from ..limits import caller_address, retry_after
from ..problems import AGAIN_IN
from ..route import Handler, Route
from . import pages
from .desk import DESK, TooOften, count

log = structlog.get_logger(__name__)

MOST = 16 * 1024
"""Bytes of a body that are looked at: what a button or a mailbox provider sends has fifty."""

BODY_WITHIN = 10.0
"""Seconds in which they must come; the address alone says enough."""


@frozen
class Wish:
    """What somebody asked for. Whatever else a POST holds, it is one to leave."""

    everything: bool
    channel: Channel


def wish_of(content_type: str, body: bytes) -> Wish:
    """A POST's body as form or multipart, whole or damaged; nothing in it can make the wish void."""
    fields = _fields(content_type, body)
    channel: Channel = "page" if fields.get("from") == "page" else "one_click"
    return Wish(fields.get("scope") == "all", channel)


def with_pages(handler: Handler) -> Handler:
    """What goes wrong is said by a page: whoever follows a link in a mail reads no JSON."""

    @wraps(handler)
    async def answered(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except InvalidToken:
            seconds = request.app[DESK].guesses.take(caller_address(request))
            return pages.too_many(request, retry_after(seconds)) if seconds else pages.not_found(request)
        except TooOften as error:
            return pages.too_many(request, retry_after(error.seconds))
        except PostledgerError as error:  # the database is away, or is not what it should be
            log.warning("page_failed", reason=str(error))
            return pages.trouble(request, AGAIN_IN)

    return answered


@with_pages
async def ask(request: web.Request) -> web.StreamResponse:
    """Shows what can be left, and changes nothing: scanners follow every link of a mail, with GET and HEAD."""
    ids = await _ids(request)
    count(request.app[DESK].looks, request)
    return pages.asking(request, await _reader(request, *ids))


@with_pages
async def leave(request: web.Request) -> web.StreamResponse:
    """Takes effect before it is answered, without cookie, session or redirect; again, it has the same effect once."""
    campaign_id, delivery_id = await _ids(request)
    wish = wish_of(request.headers.get("Content-Type", ""), await _body(request))
    async with request.app[POOL].connection() as conn:
        done = await readers.unsubscribe(
            conn, campaign_id, delivery_id, everything=wish.everything, channel=wish.channel
        )
    if done is None:
        raise InvalidToken("a token of no delivery")
    request.app[SEALER].note()
    return pages.left(request, await _reader(request, campaign_id, delivery_id))


async def _ids(request: web.Request) -> tuple[int, int]:
    return read_token(await request.app[DESK].secret(), request.match_info["token"])


async def _reader(request: web.Request, campaign_id: int, delivery_id: int) -> Reader:
    async with request.app[POOL].connection() as conn:
        reader = await readers.read(conn, campaign_id, delivery_id)
    if reader is None:  # of a rehearsal: signed by us, and never sent
        raise InvalidToken("a token of no delivery")
    return reader


async def _body(request: web.Request) -> bytes:
    """The beginning of the body, as far as it comes; a body that never does stops nobody from leaving."""
    body = b""
    try:
        async with asyncio.timeout(BODY_WITHIN):
            while len(body) < MOST and (more := await request.content.read(MOST - len(body))):
                body += more
    except (TimeoutError, web.RequestPayloadError):
        return body
    return body


def _fields(content_type: str, body: bytes) -> Mapping[str, str]:
    if content_type.lower().startswith("multipart/form-data"):
        return _multipart(content_type, body)
    return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=None, keep_blank_values=True))


def _multipart(content_type: str, body: bytes) -> Mapping[str, str]:
    head = f"Content-Type: {content_type}\r\n\r\n".encode("utf-8", "replace")
    message = BytesParser().parsebytes(head + body)
    found: dict[str, str] = {}
    for part in message.walk():
        name = part.get_param("name", header="content-disposition")
        value = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(value, bytes):
            found[name] = value.decode("utf-8", "replace").strip()
    return found


ROUTES: tuple[Route, ...] = (
    Route("GET", "/u/{token}", ask, None, "The page that asks whether to unsubscribe", produces="text/html"),
    Route("HEAD", "/u/{token}", ask, None, "The same without the page", produces="text/html"),
    Route(
        "POST",
        "/u/{token}",
        leave,
        None,
        "Unsubscribe at once (RFC 8058)",
        consumes=("application/x-www-form-urlencoded", "multipart/form-data"),
        produces="text/html",
    ),
)
