"""Campaigns as commands see them: written down, read, started, paused, resumed, cancelled, retried."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from attrs import frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError

sql = Blocks("postledger.ledger", "campaigns.sql")

STATUSES = ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")


@frozen
class Source:
    """A letter as its author wrote it: template sources, not yet rendered."""

    subject: str
    html: str | None
    text: str | None

    @property
    def hash(self) -> str:
        """sha256 over the parts, each length-prefixed: the key of `templates`."""
        digest = hashlib.sha256()
        for part in (self.subject, self.html, self.text):
            data = b"" if part is None else part.encode()
            digest.update((b"\x00" if part is None else b"\x01") + len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()


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


@frozen
class Campaign:
    """A campaign's row, with its letter and its sender."""

    id: int
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
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


async def read(conn: Connection, campaign_id: int) -> Campaign:
    """The campaign with this id. Raises NotFoundError."""
    row = await conn.fetchrow(sql.by_id, campaign_id)
    if row is None:
        raise NotFoundError(f"no campaign has the id {campaign_id}: 'postledger campaign list' shows them all")
    names = ("name", "mail_from", "sender_id", "reply_to", "kind", "unknown", "attempts", "max_deferred", "give_up")
    return Campaign(
        settings=Settings(**{name: row[name] for name in (*names, "priority")}),
        source=Source(row["subject"], row["html"], row["text"]),
        **{
            name: row[name]
            for name in (
                *("id", "status", "version", "pause_reason", "resume_at", "template", "sender_name", "sender_url"),
                *("created_at", "started_at", "finished_at"),
            )
        },
    )


async def counts(conn: Connection, campaign_id: int) -> dict[str, int]:
    """`audience` and the seven counts, which sum to it."""
    row = await conn.fetchrow(sql.counts, campaign_id)
    return dict(row) if row is not None else dict.fromkeys(("audience", *STATUSES), 0)


async def find_named(conn: Connection, name: str) -> int | None:
    """The id of the newest generation of the campaign with this name."""
    found: int | None = await conn.fetchval(sql.newest_named, name)
    return found


async def draft(conn: Connection, settings: Settings, source: Source) -> int:
    """Writes a new campaign down; returns its id. A twin's name raises UniqueViolationError."""
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
        settings.give_up,
        settings.priority,
    )
    return campaign_id


async def redraft(
    conn: Connection, campaign_id: int, settings: Settings, source: Source, fields: Sequence[str]
) -> None:
    """Another letter or other settings for a campaign that has not started."""
    await change(conn, campaign_id, "Changed", {"fields": list(fields), "template": source.hash})
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
        settings.give_up,
        settings.priority,
    )


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
        for name in ("mail_from", "reply_to", "sender_id", "kind", "unknown")
        if getattr(old.settings, name) != getattr(settings, name)
    ]
    return found + [name for name in ("subject", "html", "text") if getattr(old.source, name) != getattr(source, name)]


async def secret(conn: Connection, name: str) -> bytes:
    """An HMAC key: the first 32 bytes of its padded inner key, unmasked (RFC 2104)."""
    inner: bytes = await conn.fetchval(sql.secret, name)
    return bytes(b ^ 0x36 for b in inner[:32])
