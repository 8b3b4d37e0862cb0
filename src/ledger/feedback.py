"""What providers say of mails: taken many posts at a time, linked to deliveries, and read anew after a mend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import orjson
from attrs import frozen

from ..database import Blocks, Connection, fetch_one

sql = Blocks("postledger.ledger", "feedback.sql")

Outcome: TypeAlias = Literal["stored", "repeated", "replayed", "stale"]
"""Of a post: taken; here already; a token that was signed for another one; signed too long ago."""

KEEP_IN = timedelta(days=90)
"""For so long payloads are kept as they came; what was made of them stays."""


@frozen
class Post:
    """One post: verified, and read as far as it can be.

    `digest` is by what it is known again; `nonce` the token that was signed once. Each item names the columns of
    `read_feedback` in schema.sql, but for the number of its post; `fault` says what could not be read.
    """

    provider: str
    payload: bytes
    digest: bytes
    nonce: str | None
    signed_at: datetime | None
    items: Sequence[Mapping[str, Any]]
    fault: str | None


@frozen
class Received:
    """What became of posts: an outcome each; how many things were new, made events, have no delivery yet."""

    outcomes: Sequence[Outcome]
    noted: int
    appended: int
    unlinked: int


@frozen
class Linked:
    """What a look for missing deliveries brought; `due_in` is the time to the next, None when none is to come."""

    linked: int
    given_up: int
    appended: int
    due_in: timedelta | None


@frozen
class Payload:
    """A post as it came."""

    id: int
    provider: str
    payload: bytes


@frozen
class Unlinked:
    """Feedback without a delivery; `link_at` None: it is not looked for any more."""

    id: int
    inbox_id: int
    provider: str
    kind: str
    message_id: str | None
    occurred_at: datetime | None
    noted_at: datetime
    tries: int
    link_at: datetime | None


async def receive(conn: Connection, posts: Sequence[Post], *, window: timedelta, timeout: float) -> Received:
    """All of them in one transaction, which has been committed when this returns. `conn` is in none."""
    items = [{**item, "payload": number} for number, post in enumerate(posts, 1) for item in post.items]
    row = await fetch_one(
        conn,
        sql.receive,
        [post.provider for post in posts],
        [post.digest for post in posts],
        [post.nonce for post in posts],
        [post.signed_at for post in posts],
        window,
        [post.payload for post in posts],
        [post.fault for post in posts],
        orjson.dumps(items),
        timeout=timeout,
    )
    return Received(*row)


async def link(conn: Connection, limit: int, *, timeout: float) -> Linked:
    """Looks again for the deliveries of what came too early, as far as it is due."""
    return Linked(*await fetch_one(conn, sql.link, limit, timeout=timeout))


async def known(conn: Connection, provider: str, digest: bytes) -> bool:
    """Whether such a post is here already."""
    found: bool = await conn.fetchval(sql.known, provider, digest)
    return found


async def payloads(
    conn: Connection, *, after: int, provider: str | None, faults_only: bool, limit: int
) -> list[Payload]:
    """In the order in which they came, those behind an id."""
    return [Payload(**row) for row in await conn.fetch(sql.payloads, after, provider, faults_only, limit)]


async def reread(
    conn: Connection, payload: Payload, items: Sequence[Mapping[str, Any]], fault: str | None
) -> tuple[int, int]:
    """What a payload says by today's reading; what was said otherwise is put right by events. (New, changed) items."""
    numbered = [{**item, "payload": 1} for item in items]
    added, changed = await fetch_one(conn, sql.reread, payload.id, fault, orjson.dumps(numbered))
    return added, changed


async def unlinked(conn: Connection, *, before: int | None, limit: int) -> list[Unlinked]:
    """Feedback without a delivery, the latest first."""
    return [Unlinked(**row) for row in await conn.fetch(sql.unlinked, before, limit)]


async def forget(conn: Connection, limit: int) -> int:
    """Some payloads that are old enough to be forgotten; how many."""
    gone: int = await conn.fetchval(sql.forget, KEEP_IN, limit)
    return gone
