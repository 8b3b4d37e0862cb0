"""Previews: the exact mail of one recipient before it leaves, and what a reader would see of it."""

from __future__ import annotations

from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP
from typing import Any, Literal
from uuid import UUID

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...ledger import campaigns, limits, samples
from ...ledger.public import Id
from ...ledger.queue import Delivery
from ...ledger.samples import Sample
from ...messages.mime import Composed
from ...workers.writer import Writer
from ..keys import CONFIG, POOL
from ..problems import Problem
from ..route import Route
from ..wire import answer, read_body, read_id, read_query

SANDBOX = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src https: data:; font-src https: data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
"""No script, no form, no origin: what a letter holds can do nothing to whoever looks at it."""


@frozen
class Whose:
    """Whose mail is shown."""

    delivery_id: Id | None = None
    """One of the campaign's deliveries; without it the first."""


@frozen
class MadeUp:
    """A person made up to see what their mail would be."""

    email: str = limits.email(repr=False)
    name: str | None = limits.text(998, least=0, example="Ann", default=None, repr=False)
    key: str | None = limits.text(200, lines=True, example="c-17", default=None, repr=False)
    data: dict[str, Any] = limits.data(factory=dict)


@frozen
class Header:
    """A line of the mail's head, unfolded."""

    name: str
    value: str


@frozen
class Preview:
    """A mail as it would leave now: only its Date, and so its hash, would be of another moment."""

    delivery_id: Id
    subject: str
    message_id: str
    size: int
    """Bytes."""
    sha256: str
    headers: list[Header]
    text: str | None
    html: str | None
    mime: str
    """The exact bytes, which are all ASCII, with CRLF line ends."""


async def preview(request: web.Request) -> web.Response:
    """The mail of one recipient, byte for byte as the relay would get it, and its parts."""
    _, composed, delivery_id = await _of_recipient(request)
    return answer(_shown(delivery_id, composed))


async def preview_mime(request: web.Request) -> web.Response:
    """The same as a file, for a mail program to open."""
    _, composed, delivery_id = await _of_recipient(request)
    return web.Response(
        body=composed.content,
        content_type="message/rfc822",
        headers={"Content-Disposition": f'attachment; filename="{delivery_id}.eml"'},
    )


async def preview_html(request: web.Request) -> web.Response:
    """What a reader would see, in a sandbox. Its links lead to nobody, and looking at it is no open."""
    asked, campaign_id = read_query(request, Whose), read_id(request)
    async with request.app[POOL].connection() as conn:
        person = await samples.nobody(conn, await _person(conn, campaign_id, asked.delivery_id))
        writer = await writer_of(request, conn, campaign_id)
    writer.tracked = None
    html = _part(_read(compose(writer, campaign_id, person)), "html")
    return web.Response(
        text=html or "",
        content_type="text/html",
        headers={"Content-Security-Policy": SANDBOX, "X-Frame-Options": "SAMEORIGIN"},
    )


async def preview_made_up(request: web.Request) -> web.Response:
    """The mail of somebody who is no recipient, to see what the letter makes of other data."""
    asked, campaign_id = await read_body(request, MadeUp), read_id(request)
    async with request.app[POOL].connection() as conn:
        writer = await writer_of(request, conn, campaign_id)
        person = await samples.made_up(conn, asked.email, asked.name, asked.key, asked.data)
    return answer(_shown(person.delivery_id, compose(writer, campaign_id, person)))


async def writer_of(request: web.Request, conn: Connection, campaign_id: int) -> Writer:
    """The writer of a campaign's mails, the one that workers use. Raises NotFoundError."""
    campaign = await campaigns.read(conn, campaign_id)
    return await Writer.load(conn, campaign, request.app[CONFIG].url)


def compose(writer: Writer, campaign_id: int, person: Sample) -> Composed:
    """The mail. Raises RenderError."""
    delivery = Delivery(
        campaign_id,
        person.delivery_id,
        UUID(int=0),
        0,
        person.attempt,
        key=person.key,
        email=person.email,
        name=person.name,
        data=person.data,
    )
    return writer.compose(delivery)


async def _of_recipient(request: web.Request) -> tuple[int, Composed, int]:
    asked, campaign_id = read_query(request, Whose), read_id(request)
    async with request.app[POOL].connection() as conn:
        writer = await writer_of(request, conn, campaign_id)
        person = await _person(conn, campaign_id, asked.delivery_id)
    return campaign_id, compose(writer, campaign_id, person), person.delivery_id


async def _person(conn: Connection, campaign_id: int, delivery_id: int | None) -> Sample:
    await campaigns.read(conn, campaign_id)
    person = await samples.recipient(conn, campaign_id, delivery_id)
    if person is None:
        raise Problem(
            "conflict",
            "nobody is written down in this campaign",
            remedy="add people first, or POST a person to this path to see what their mail would be",
        )
    return person


def _shown(delivery_id: int, composed: Composed) -> Preview:
    mail = _read(composed)
    return Preview(
        delivery_id=Id(delivery_id),
        subject=str(mail["Subject"]),
        message_id=composed.message_id,
        size=len(composed.content),
        sha256=composed.sha256,
        headers=[Header(name, str(value)) for name, value in mail.items()],
        text=_part(mail, "plain"),
        html=_part(mail, "html"),
        mime=composed.content.decode("ascii"),
    )


def _read(composed: Composed) -> EmailMessage:
    return message_from_bytes(composed.content, policy=SMTP)


def _part(mail: EmailMessage, subtype: Literal["plain", "html"]) -> str | None:
    body = mail.get_body((subtype,))
    return None if body is None else str(body.get_content())


ROUTES = (
    Route(
        *("GET", "/v1/campaigns/{id}/preview", preview, "read", "See the exact mail of one recipient"),
        query=Whose,
        answer=Preview,
        also=("send",),
        problems=("conflict",),
    ),
    Route(
        *("POST", "/v1/campaigns/{id}/preview", preview_made_up, "read", "See the mail of a person made up"),
        body=MadeUp,
        answer=Preview,
        also=("send",),
    ),
    Route(
        *("GET", "/v1/campaigns/{id}/preview/html", preview_html, "read", "See what a reader would see"),
        query=Whose,
        produces="text/html",
        also=("send",),
        problems=("conflict",),
    ),
    Route(
        *("GET", "/v1/campaigns/{id}/preview/mime", preview_mime, "read", "Get the exact mail as a file"),
        query=Whose,
        produces="message/rfc822",
        also=("send",),
        problems=("conflict",),
    ),
)
