"""Senders: the URL as it is stored, the password apart from it, and the rate at which mails may leave by it."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

from attrs import frozen

from ..database import Blocks, Connection, fetch_one

sql = Blocks("postledger.ledger", "campaigns.sql")


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
