"""Senders: the URL as it is stored, the password apart from it, and the rate at which mails may leave by it."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime, timedelta
from urllib.parse import urlsplit, urlunsplit

from attrs import field, frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import ConflictError, DataError, NotFoundError
from .pages import Page

sql = Blocks("postledger.ledger", "campaigns.sql")
own = Blocks("postledger.ledger", "senders.sql")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
MOST = 1_000_000


@frozen
class Rate:
    """So many mails in so many seconds, evenly; written 100/s."""

    count: int
    per: timedelta

    @classmethod
    def read(cls, text: str) -> Rate:
        """Raises ValueError, in words for the one who wrote it."""
        found = re.fullmatch(r"([0-9]{1,9}) ?/ ?([smhd])", text.strip())
        if found is None:
            raise ValueError(f"{text!r} is no rate: write 100/s, 5000/m, 20000/h or 500/d")
        count = int(found[1])
        if not 1 <= count <= MOST:
            raise ValueError(f"{text!r} is not between 1 and {MOST:,}: a slow one is written per minute, hour or day")
        return cls(count, timedelta(seconds=_UNITS[found[2]]))


async def set_rate(conn: Connection, sender_id: int, rate: Rate | None) -> bool:
    """From now on at this rate, for all campaigns through the sender and all workers; None: without a limit.

    False: that was so already.
    """
    changed: bool = await conn.fetchval(
        sql.set_rate, sender_id, None if rate is None else rate.count, None if rate is None else rate.per
    )
    return changed


def split_secret(url: str) -> tuple[str, str | None]:
    """The URL without its password, and the password as it stands in the URL (quoted, or `env:NAME`)."""
    parts = urlsplit(url)
    userinfo, at, place = parts.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    if not at or not colon:
        return url, None
    return urlunsplit(parts._replace(netloc=f"{user}@{place}")), password


def join_secret(url: str, secret: str | None) -> str:
    """The URL as it was given."""
    if secret is None:
        return url
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}:{secret}@{place}"))


async def keep(conn: Connection, url: str) -> int:
    """The id of the sender with this URL, made where it is new; another password replaces the old one."""
    shown, secret = split_secret(url)
    sender: int = await conn.fetchval(sql.keep_sender, shown, shown, secret)
    return sender


async def read_url(conn: Connection, sender_id: int) -> str:
    """The whole URL of a sender, password included: for the provider alone, never for a log."""
    row = await fetch_one(conn, sql.sender_secret, sender_id)
    return join_secret(row["url"], row["secret"])


@frozen
class Sender:
    """A way out: `url` without its password, `mail_from` the From of campaigns that say none, `rate` as in 100/s."""

    id: int
    name: str
    url: str
    secret: str | None = field(repr=False)
    mail_from: str | None
    rate: str | None
    created_at: datetime


async def page(conn: Connection, *, after: int, limit: int) -> Page:
    """Senders above the id `after`."""
    rows = await conn.fetch(own.page, after, limit + 1)
    found = [Sender(**row) for row in rows[:limit]]
    return Page(found, str(found[-1].id) if len(rows) > limit else None)


async def read(conn: Connection, sender_id: int) -> Sender:
    """Raises NotFoundError."""
    row = await conn.fetchrow(own.by_id, sender_id)
    if row is None:
        raise NotFoundError(f"no sender has the id {sender_id}: GET /v1/senders lists them all")
    return Sender(**row)


async def create(conn: Connection, name: str, url: str, mail_from: str | None, rate: Rate | None) -> Sender:
    """A sender with a name of its own. Raises ConflictError where there is one of this name."""
    shown, secret = split_secret(url)
    async with conn.transaction():
        await conn.execute(own.lock)
        sender_id: int | None = await conn.fetchval(own.new, name, shown, secret, mail_from)
        if sender_id is None:
            raise ConflictError(f"there is a sender called {name!r} already: choose another name, or change that one")
        if rate is None:
            await conn.execute(own.changed, sender_id)
        else:
            await set_rate(conn, sender_id, rate)
        return await read(conn, sender_id)


async def change(
    conn: Connection,
    sender_id: int,
    given: Collection[str],
    *,
    url: str | None,
    mail_from: str | None,
    rate: Rate | None,
) -> Sender:
    """Another password (`url`), From (`mail_from`) or `rate`: those that are `given`.

    The URL is the same but for its password: campaigns, and what the log says of them, name a sender by its number.
    Raises NotFoundError and DataError.
    """
    async with conn.transaction():
        await conn.execute(own.lock)
        old = await read(conn, sender_id)
        shown, secret = (old.url, old.secret) if url is None else split_secret(url)
        if shown != old.url:
            raise DataError("url: a sender keeps its relay, only the password may differ: make another sender")
        now = mail_from if "mail_from" in given else old.mail_from
        if (secret, now) != (old.secret, old.mail_from):
            await conn.execute(own.change, sender_id, secret, now)
            await conn.execute(own.changed, sender_id)
        if "rate" in given:
            await set_rate(conn, sender_id, rate)
        return await read(conn, sender_id)
