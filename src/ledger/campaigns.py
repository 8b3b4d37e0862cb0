"""Campaigns as commands see them: written down, read, started, paused, resumed, cancelled, retried."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from attrs import field, fields, frozen

from ..database import Blocks, Connection
from ..errors import DataError, NotFoundError

sql = Blocks("postledger.ledger", "campaigns.sql")

MISSED_AFTER = timedelta(hours=4)
"""A start that comes later than this is held: long enough for an outage that somebody mends, too short for a restored
backup, or a worker that nobody had started, to mail at an hour that nobody chose."""

DEFAULT_SHARE = 50
"""Percent of failures above which a campaign pauses that says nothing of it."""

STATUSES = ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")


@frozen
class Source:
    """A letter as its author wrote it: template sources, not yet rendered."""

    subject: str
    html: str | None
    text: str | None

    @cached_property
    def hash(self) -> str:
        """sha256 over the parts, each length-prefixed: the key of `templates`."""
        digest = hashlib.sha256()
        for part in (self.subject, self.html, self.text):
            data = b"" if part is None else part.encode()
            digest.update((b"\x00" if part is None else b"\x01") + len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()


def _tracked(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(kinds)


@frozen
class Settings:
    """What a campaign is to do, beside its letter and its people."""

    name: str
    mail_from: str
    sender_id: int = 0
    reply_to: str | None = None
    kind: str = "bulk"
    unknown: str = "resend"
    attempts: int = 5
    max_deferred: int | None = None
    give_up: timedelta = timedelta(hours=24)
    priority: int = 0
    list_id: int | None = None
    expires: timedelta | None = None
    missed_after: timedelta | None = MISSED_AFTER
    """None: a start that was missed is made up for, however late."""
    max_errors: int | None = None
    """Percent of failures above which it pauses; None: the default, 100: never."""
    track: tuple[str, ...] = field(default=(), converter=_tracked)
    """What is noted of its readers, of `opens` and `clicks`; nothing by default."""


@frozen
class Campaign:
    """A campaign's row, with its letter and its sender."""

    id: int
    generation: int
    status: str
    version: int
    pause_reason: str | None
    resume_at: datetime | None
    settings: Settings
    source: Source
    template: str
    """The key of the letter in `templates`."""
    sender_name: str
    sender_url: str
    rate: str | None
    """The sender's, as in 100/s: all campaigns through it share it."""
    list_name: str | None
    created_at: datetime
    starts_at: datetime | None
    """The moment it was scheduled for."""
    started_at: datetime | None
    finished_at: datetime | None


async def read(conn: Connection, campaign_id: int) -> Campaign:
    """The campaign with this id. Raises NotFoundError."""
    row = await conn.fetchrow(sql.by_id, campaign_id)
    if row is None:
        raise _missing(campaign_id)
    return Campaign(
        settings=Settings(**{attribute.name: row[attribute.name] for attribute in fields(Settings)}),
        source=Source(row["subject"], row["html"], row["text"]),
        **{
            attribute.name: row[attribute.name]
            for attribute in fields(Campaign)
            if attribute.name not in ("settings", "source")
        },
    )


async def check_there(conn: Connection, campaign_id: int) -> str:
    """The status of the campaign with this id. Raises NotFoundError."""
    status: str | None = await conn.fetchval(sql.status, campaign_id)
    if status is None:
        raise _missing(campaign_id)
    return status


async def name_of(conn: Connection, campaign_id: int) -> str:
    """The name of the campaign with this id. Raises NotFoundError."""
    name: str | None = await conn.fetchval(sql.name_of, campaign_id)
    if name is None:
        raise _missing(campaign_id)
    return name


def _missing(campaign_id: int) -> NotFoundError:
    return NotFoundError(f"no campaign has the id {campaign_id}: 'postledger campaign list' shows them all")


async def counts(conn: Connection, campaign_id: int) -> dict[str, int]:
    """`audience` and the seven counts, which sum to it."""
    row = await conn.fetchrow(sql.counts, campaign_id)
    return dict(row) if row is not None else dict.fromkeys(("audience", *STATUSES), 0)


async def find_named(conn: Connection, name: str) -> int | None:
    """The id of the newest generation of the campaign with this name."""
    found: int | None = await conn.fetchval(sql.newest_named, name)
    return found


async def draft(conn: Connection, settings: Settings, source: Source) -> int:
    """Writes a new campaign down; returns its id. A twin's name raises UniqueViolationError, a number DataError."""
    if settings.name.isascii() and settings.name.isdigit():
        raise DataError(f"name: {settings.name!r} would be taken for another campaign's id: put a letter into it")
    await conn.execute(sql.keep_template, source.hash, source.subject, source.html, source.text)
    campaign_id: int = await conn.fetchval(
        sql.draft,
        settings.name,
        settings.kind,
        settings.sender_id,
        source.hash,
        settings.mail_from,
        settings.reply_to,
        settings.unknown,
        settings.attempts,
        settings.max_deferred,
        _seconds(settings.give_up),
        settings.priority,
        _seconds(settings.expires),
        _seconds(settings.missed_after),
        settings.max_errors,
        settings.list_id,
        settings.track,
    )
    return campaign_id


async def redraft(
    conn: Connection, campaign_id: int, settings: Settings, source: Source, changed: Sequence[str]
) -> None:
    """Another letter or other settings for a campaign that has not started; `changed` names what differs."""
    await change(conn, campaign_id, "Changed", _changed(settings, source, changed))
    await conn.execute(sql.keep_template, source.hash, source.subject, source.html, source.text)
    await conn.execute(
        sql.redraft,
        campaign_id,
        source.hash,
        settings.sender_id,
        settings.mail_from,
        settings.reply_to,
        settings.unknown,
        settings.attempts,
        settings.max_deferred,
        _seconds(settings.give_up),
        settings.priority,
        _seconds(settings.expires),
        _seconds(settings.missed_after),
        settings.max_errors,
        settings.list_id,
        settings.track,
    )


def _seconds(value: timedelta | None) -> float | None:
    return None if value is None else value.total_seconds()


def _changed(settings: Settings, source: Source, changed: Sequence[str]) -> dict[str, Any]:
    """The body of Changed: the fields' names, and the values of those that the log may hold."""
    names = [_IN_EVENT.get(name, name) for name in changed]
    values = {
        "sender": str(settings.sender_id),
        "template": source.hash,
        "list": None if settings.list_id is None else str(settings.list_id),
        **{name: getattr(settings, name) for name in ("unknown", "attempts", "priority", "max_errors")},
        "track": settings.track or None,
        **{
            name: None if value is None else round(value.total_seconds())
            for name in ("give_up", "expires", "missed_after")
            for value in (getattr(settings, name),)
        },
    }
    given = {name: values[name] for name in names if values.get(name) is not None}
    return {"fields": list(dict.fromkeys(names)), **given}


_IN_EVENT = {
    "sender_id": "sender",
    "list_id": "list",
    "subject": "template",
    "html": "template",
    "text": "template",
}


async def change(
    conn: Connection,
    campaign_id: int,
    event: str,
    body: Mapping[str, Any] | None = None,
    expected: int | None = None,
) -> int:
    """One event on the campaign's own stream; returns its new version.

    Raises PL004 when the state does not allow it, PL005 when it is not at version `expected`.
    """
    version: int = await conn.fetchval(sql.change, campaign_id, event, body or {}, expected)
    return version


def differences(old: Campaign, settings: Settings, source: Source) -> list[str]:
    """The names of the fields in which a campaign differs from what is asked for now."""
    found = [
        name
        for name in ("mail_from", "reply_to", "sender_id", "kind", "list_id", "unknown")
        if getattr(old.settings, name) != getattr(settings, name)
    ]
    return found + [name for name in ("subject", "html", "text") if getattr(old.source, name) != getattr(source, name)]


async def pause(conn: Connection, campaign_id: int, reason: str, resume_in: timedelta | None = None) -> int:
    """Paused until somebody resumes it, or for so long by the database's clock.

    Raises PL004 in other states, LockNotAvailableError while somebody adds people to it: not yet, then.
    """
    version: int = await conn.fetchval(sql.pause, campaign_id, reason, resume_in)
    return version


async def secret(conn: Connection, name: str) -> bytes:
    """An HMAC key: the first 32 bytes of its padded inner key, unmasked (RFC 2104)."""
    inner: bytes = await conn.fetchval(sql.secret, name)
    return bytes(b ^ 0x36 for b in inner[:32])
