"""Sender URLs as they are stored: the address in the open, the password apart from it."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from ..database import Blocks, Connection, fetch_one

sql = Blocks("postledger.ledger", "campaigns.sql")


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
