"""Senders: the ways out, shown without their passwords."""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import quote, urlsplit

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...errors import ConfigurationError
from ...ledger import limits, senders
from ...ledger.public import Id
from ...ledger.senders import Rate, join_secret, split_secret
from ...workers.providers import registry
from ...workers.providers.urls import redact
from ..effects import effect
from ..keys import POOL
from ..paging import Paging
from ..problems import Problem
from ..route import Route
from ..wire import answer, read_body, read_given, read_id, read_query

_VARIABLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]{0,99}")


@frozen
class NewSender:
    """A way out: a provider's URL, with a name by which campaigns call it."""

    name: str = limits.text(200, example="relay")
    url: str = limits.text(2000, example="smtp://user@relay.example:587", repr=False)
    """smtp://, smtps://, file:///folder or null://. A password may stand in it; it is never shown."""
    secret: str | None = limits.text(1000, example="env:RELAY_PASSWORD", default=None, repr=False)
    """The password apart from the URL; `env:NAME`: what the variable NAME says where workers run."""
    mail_from: str | None = limits.mailbox(name="from", default=None)
    """The From of campaigns that say none."""
    rate: Rate | None = None
    """How many mails may leave by it, over all campaigns and workers."""


@frozen
class SenderChange:
    """What of a sender may change: its password, its From, its rate; null takes away. Its relay may not."""

    url: str | None = limits.text(2000, default=None, repr=False)
    """The same as before but for the password."""
    secret: str | None = limits.text(1000, example="env:RELAY_PASSWORD", default=None, repr=False)
    mail_from: str | None = limits.mailbox(name="from", default=None)
    rate: Rate | None = None


@frozen(kw_only=True)
class Sender:
    """A way out, without its password."""

    id: Id
    name: str
    url: str
    """Without its password."""
    has_secret: bool
    secret: str | None
    """`env:NAME` where it is read from a variable; no other is ever shown."""
    mail_from: str | None = limits.limited(schema={}, name="from")
    rate: str | None
    created_at: datetime


@frozen
class Senders:
    """A page of senders."""

    items: list[Sender]
    next: str | None


async def list_(request: web.Request) -> web.Response:
    """In the order in which they were made."""
    asked = read_query(request, Paging)
    async with request.app[POOL].connection() as conn:
        page = await senders.page(conn, after=asked.after_id(), limit=asked.limit)
    return answer(Senders([shown(one) for one in page.items], page.next))


async def create(request: web.Request) -> web.Response:
    """What the URL says is checked; nobody is connected to."""
    asked = await read_body(request, NewSender)
    url = whole_url(asked.url, asked.secret)

    async def act(conn: Connection) -> web.Response:
        made = await senders.create(conn, asked.name, url, asked.mail_from, asked.rate)
        return answer(shown(made), 201, headers={"Location": f"/v1/senders/{made.id}"})

    return await effect(request, act)


async def show(request: web.Request) -> web.Response:
    """Without its password."""
    async with request.app[POOL].connection() as conn:
        return answer(shown(await senders.read(conn, read_id(request))))


async def change(request: web.Request) -> web.Response:
    """Another password, From or rate. Workers take the password when they open the sender next, the rate at once."""
    sender_id = read_id(request)
    asked, given = await read_given(request, SenderChange)

    async def act(conn: Connection) -> web.Response:
        url = asked.url
        if asked.secret is not None:
            url = whole_url(url or (await senders.read(conn, sender_id)).url, asked.secret)
        elif url is not None:
            url = whole_url(url, None)
        names = {"mail_from" if name == "from" else name for name in given}
        return answer(
            shown(await senders.change(conn, sender_id, names, url=url, mail_from=asked.mail_from, rate=asked.rate))
        )

    return await effect(request, act)


def whole_url(url: str, secret: str | None) -> str:
    """The URL with its password in it. Raises Problem where no provider takes it.

    A variable of our own may not be a password: whoever may name a relay would be told it by that.
    """
    if secret is not None:
        url = _with_secret(url, secret)
    written = split_secret(url)[1] or ""
    if written.startswith("env:") and not _may_be_told(written):
        raise Problem(
            "invalid",
            "secret: not a variable that may hold a password",
            field="secret",
            remedy="write env:NAME, with a name that does not begin with POSTLEDGER_",
        )
    try:
        # Where workers run the variable may be set, and here not: what it says is their affair.
        registry.make(join_secret(url.replace(f":{written}@", "@", 1), "x") if written else url, concurrency=1)
    except ConfigurationError as error:
        raise Problem("invalid", redact(str(error)), field="url", remedy="correct the URL") from None
    return url


def _may_be_told(written: str) -> bool:
    return bool(_VARIABLE.fullmatch(written)) and not written.upper().startswith("ENV:POSTLEDGER_")


def _with_secret(url: str, secret: str) -> str:
    bare, written = split_secret(url)
    if not urlsplit(bare).username:
        raise Problem(
            "invalid",
            "secret: the URL names no user whose password that could be",
            field="secret",
            remedy="write the URL as smtp://user@host, or leave the secret out",
        )
    if written is not None:
        raise Problem("invalid", "secret: the URL has a password already", field="secret", remedy="give it once")
    return join_secret(bare, secret if secret.startswith("env:") else quote(secret, safe=""))


def shown(one: senders.Sender) -> Sender:
    """As answers show it."""
    is_variable = one.secret is not None and one.secret.startswith("env:")
    return Sender(
        id=Id(one.id),
        name=one.name,
        url=one.url if urlsplit(one.url).scheme in ("smtp", "smtps", "file", "null") else redact(one.url),
        has_secret=one.secret is not None,
        secret=one.secret if is_variable else None,
        mail_from=one.mail_from,
        rate=one.rate,
        created_at=one.created_at,
    )


ROUTES = (
    Route("GET", "/v1/senders", list_, "read", "All senders", query=Paging, answer=Senders, also=("send",)),
    Route(
        *("POST", "/v1/senders", create, "admin", "Make a sender"),
        body=NewSender,
        answer=Sender,
        status=201,
        idempotent=True,
        problems=("conflict",),
    ),
    Route("GET", "/v1/senders/{id}", show, "read", "One sender", answer=Sender, also=("send",)),
    Route(
        *("PATCH", "/v1/senders/{id}", change, "admin", "Change a sender"),
        body=SenderChange,
        answer=Sender,
    ),
)
