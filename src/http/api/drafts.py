"""A campaign's draft as a request says it: its fields, and what becomes of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

from attrs import evolve, frozen

from ...config import redact
from ...database import Connection
from ...errors import NotFoundError
from ...ledger import contacts, drafting, limits, senders, templates
from ...ledger.campaigns import MISSED_AFTER, Settings, Source
from ...ledger.public import Unfit
from ..problems import Problem

LETTER = 2_000_000
"""Characters of a letter's HTML, or text."""

Tracked: TypeAlias = Literal["opens", "clicks"]

EXAMPLE = '<p>Hello {{ name }},</p><p><a href="{{ unsubscribe_url }}">no more of this</a></p>'


def _check_share(value: str) -> None:
    if not re.fullmatch(r"[0-9]{1,3}%", value) or not 1 <= int(value[:-1]) <= 100:
        raise Unfit(f"{value[:40]!r} is no share", "write 20%, whole percents from 1% to 100%; null is off")


def _share(**options: Any) -> Any:
    schema = {"pattern": "^([1-9][0-9]?|100)%$", "examples": ["50%"]}
    return limits.limited(_check_share, schema=schema, **options)


def _check_track(values: tuple[str, ...]) -> None:
    if len(set(values)) != len(values):
        raise Unfit("one of them twice", "write each once")


def _length(**options: Any) -> Any:
    def check(value: timedelta) -> None:
        if value < timedelta(seconds=1):
            raise Unfit("less than a second", "write 1s or more")

    return limits.limited(check, schema={}, **options)


@frozen(kw_only=True)
class Changes:
    """What may be changed of a draft; what is not there stays as it is."""

    subject: str | None = limits.text(998, example="Hello {{ name }}", default=None)
    """A template like the letter."""
    mail_from: str | None = limits.mailbox(name="from", default=None)
    """Null: the sender's own."""
    reply_to: str | None = limits.mailbox("Shop <answers@shop.example>", default=None)
    html: str | None = limits.text(LETTER, lines=True, example=EXAMPLE, default=None)
    text: str | None = limits.text(LETTER, lines=True, default=None)
    """Null: made from the HTML."""
    template: str | None = limits.text(64, default=None)
    """The hash of a letter that is there, in place of subject, html and text."""
    sender: str | None = limits.text(1000, example="relay", default=None)
    """The name of a sender, or its id."""
    list: str | None = limits.text(200, default=None)
    """The list whose unsubscriptions it obeys."""
    priority: int | None = limits.number(-1_000_000, 1_000_000, default=None)
    """Higher ones are served first: 0."""
    unknown: Literal["resend", "hold"] | None = None
    """What follows an unknown outcome: resend."""
    attempts: int | None = limits.number(1, 10_000, default=None)
    """Tries until a recipient has failed: 5."""
    give_up: timedelta | None = _length(default=None)
    """Age at which transient replies end: 24h."""
    expires: timedelta | None = _length(default=None)
    """What was not sent so long after it was due is skipped; null: however late."""
    missed: timedelta | None = _length(default=MISSED_AFTER)
    """A start that comes later than this is held; null: none is."""
    max_errors: str | None = _share(default="50%")
    """Share of failures above which it pauses; null: none does."""
    track: tuple[Literal["opens", "clicks"], ...] = limits.limited(
        _check_track, schema={"uniqueItems": True}, default=()
    )
    """What is noted of its readers."""


@frozen(kw_only=True)
class NewCampaign(Changes):
    """A campaign to be written down as a draft, or with `at` scheduled."""

    name: str = limits.text(200, example="spring")
    sender: str = limits.text(1000, example="relay")
    """The name of a sender, or its id."""
    kind: Literal["bulk", "standing"] = "bulk"
    """A standing one takes messages one by one and never ends."""
    at: datetime | None = None
    """It begins by itself then; the people have to be there before."""


async def settings_of(conn: Connection, asked: Changes, given: Collection[str], base: Settings) -> Settings:
    """`base` with what was given, by its public name. Raises Problem for a sender or a list that is not there."""
    found: dict[str, Any] = {
        own: getattr(asked, own if own != "missed_after" else "missed")
        for name, own in _NULLABLE.items()
        if name in given
    }
    found |= {name: getattr(asked, name) for name in _FIXED if name in given and getattr(asked, name) is not None}
    if "attempts" in found:  # a limit that somebody asks for also ends transient replies
        found["max_deferred"] = asked.attempts
    if "max_errors" in given:
        found["max_errors"] = 100 if asked.max_errors is None else int(asked.max_errors[:-1])
    if "list" in given:
        found["list_id"] = None if asked.list is None else await _list(conn, asked.list)
    sender = await _sender(conn, asked.sender) if asked.sender is not None else None
    if sender is not None:
        found["sender_id"] = sender.id
    if asked.mail_from is not None:
        found["mail_from"] = asked.mail_from
    elif "from" in given or not base.mail_from:
        sender = sender or await senders.read(conn, base.sender_id)
        found["mail_from"] = sender.mail_from or ""
    return evolve(base, **found)


_NULLABLE = {"reply_to": "reply_to", "expires": "expires", "missed": "missed_after"}
_FIXED = ("priority", "unknown", "attempts", "give_up", "track")


async def source_of(conn: Connection, asked: Changes, given: Collection[str], base: Source | None) -> Source:
    """The letter, `base` with what was given. Raises Problem where it would not be whole."""
    if asked.template is not None:
        base = await _letter(conn, asked.template)
    parts = {name: getattr(base, name, None) for name in ("subject", "html", "text")}
    parts |= {name: getattr(asked, name) for name in parts if name in given}
    for name in ("subject", "html"):
        if parts[name] is None:
            raise Problem("invalid", f"{name}: missing", field=name, remedy="give it, or a template")
    return Source(str(parts["subject"]), parts["html"], parts["text"])


async def _letter(conn: Connection, template: str) -> Source:
    try:
        kept = await templates.read(conn, template)
    except NotFoundError as error:
        raise Problem("invalid", str(error), field="template", remedy="give the hash of one that is there") from error
    return Source(kept.subject, kept.html, kept.text)


async def _list(conn: Connection, name: str) -> int:
    try:
        return await contacts.find_list(conn, name)
    except NotFoundError:
        raise Problem(
            "invalid", f"no list is called {name!r}", field="list", remedy="make it first: POST /v1/lists"
        ) from None


async def _sender(conn: Connection, word: str) -> senders.Sender:
    found = await drafting.find_sender(conn, word)
    if found is None:
        shown = redact(word) if "://" in word else word
        raise Problem(
            "invalid",
            f"no sender has the name or id {shown!r}",
            field="sender",
            remedy="GET /v1/senders lists them; POST /v1/senders makes one",
        )
    return found
