"""The calls that move deliveries through the queue: claim, permit, settle, reclaim; one round trip each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from attrs import field, frozen

from ..database import Blocks, Connection, fetch_one

T = TypeVar("T")

sql = Blocks("postledger.ledger", "queue.sql")

MILLISECOND = timedelta(milliseconds=1)

LEASE_IN = timedelta(seconds=60)


@frozen
class Delivery:
    """One claimed row: `fence` is the version of its Claimed event, `attempt` counts this try from 1."""

    campaign_id: int
    delivery_id: int
    claim_id: UUID
    fence: int
    attempt: int
    age: timedelta | None = None
    """Since it was first claimed; None at the first time."""
    key: str | None = None
    email: str | None = None
    name: str | None = None
    data: Mapping[str, Any] | None = None


@frozen
class Claim:
    """What a claim call brought: rows, and what to do when there are fewer than asked for."""

    rows: Sequence[Delivery]
    busy: bool
    due_in: timedelta | None
    skipped: int
    cancelled: int


@frozen
class Outcome:
    """What became of one delivery: the event to record, and what goes with it."""

    delivery: Delivery
    type: str
    body: Mapping[str, Any]
    due_in: timedelta | None = None
    suppress: str | None = None
    reply: str | None = None


@frozen
class Settled:
    """How many outcomes were recorded, were known already, or came too late to change anything."""

    applied: int = 0
    repeated: int = 0
    evidence: int = 0


@frozen
class Work:
    """What there is to do, and until when one may sleep if there is nothing.

    `cancelled` ones have rows that only need to be told; `finishable` may be at their end; `watch`: others hold claims.
    `priorities` and `rates` ("100/s", or None) are those of `campaigns`, one each; `waking` are to start or resume now,
    the next one is after `wake_in`. `unsealed`: somebody has appended and not seen to it that it is sealed.
    """

    campaigns: Sequence[int]
    cancelled: Sequence[int]
    due_in: timedelta | None
    finishable: Sequence[int]
    watch: bool
    priorities: Sequence[int] = ()
    rates: Sequence[str | None] = ()
    waking: Sequence[int] = ()
    wake_in: timedelta | None = None
    unsealed: bool = False


@frozen
class Lease:
    """A piece of a sender's time: `granted` mails, one each `each` seconds, from `starts_in` seconds on.

    Nothing granted: ask again after `retry_in`. `each` None: the sender has no rate.
    """

    granted: int | None
    each: float | None
    starts_in: float | None
    retry_in: timedelta | None


@frozen
class Permit:
    """What may be sent at the moment it was asked for (`asked_at`: the asker's monotonic clock, seconds)."""

    asked_at: float
    alive: bool
    lost: frozenset[UUID] = field(converter=frozenset)
    stopped: frozenset[int] = field(converter=frozenset)
    suppressed: frozenset[int] = field(converter=frozenset)
    strays: frozenset[UUID] = field(converter=frozenset)


async def next_work(conn: Connection, worker: int, only: int | None, *, timeout: float) -> Work:
    """Which campaigns have due rows; `only` limits the answer to one campaign."""
    row = await fetch_one(conn, sql.next_work, worker, only, timeout=timeout)
    return Work(*row)


async def lease_tokens(conn: Connection, sender: int, how_long: timedelta, *, timeout: float) -> Lease:
    """The next piece of a sender's time, at most so long."""
    return Lease(*await fetch_one(conn, sql.lease_tokens, sender, how_long, timeout=timeout))


async def claim(
    conn: Connection, campaign: int, claim_id: UUID, worker: int, limit: int, *, content: bool, timeout: float
) -> Claim:
    """Takes up to `limit` due rows; repeated with the same `claim_id` it answers the same rows.

    `content` asks for address, name and data too. Raises PL006 (ConflictError) when the worker was declared dead.
    """
    row = await fetch_one(conn, sql.claim, campaign, claim_id, worker, limit, content, timeout=timeout)
    busy, due_in, skipped, cancelled, ids, versions, attempts, *rest = row
    if ids is None:
        return Claim((), busy, due_in, skipped, cancelled)
    nothing = (None,) * len(ids)
    columns = [nothing if column is None else column for column in rest]
    rows = [
        Delivery(campaign, delivery_id, claim_id, version, attempt + 1, *others)
        for delivery_id, version, attempt, *others in zip(ids, versions, attempts, *columns, strict=True)
    ]
    return Claim(rows, busy, due_in, skipped, cancelled)


async def settle(
    conn: Connection, campaign: int, outcomes: Sequence[Outcome], *, timeout: float, patience: timedelta | None = None
) -> Settled:
    """Records outcomes of one campaign, each once, in one transaction; late ones as far as they may.

    Raises LockNotAvailableError where a lock was not to be had within `patience`, and then nothing is recorded.
    """
    due = [o.due_in for o in outcomes]
    suppress = [o.suppress for o in outcomes]
    replies = [o.reply for o in outcomes]
    row = await fetch_one(
        conn,
        sql.settle,
        campaign,
        _alike([o.delivery.claim_id for o in outcomes]),
        [o.delivery.delivery_id for o in outcomes],
        [o.delivery.fence for o in outcomes],
        _alike([o.type for o in outcomes]),
        _alike([o.body for o in outcomes]),
        due if any(due) else None,
        suppress if any(suppress) else None,
        replies if any(replies) else None,
        "0" if patience is None else f"{patience / MILLISECOND:.0f}ms",
        timeout=timeout,
    )
    return Settled(*row)


def _alike(values: list[T]) -> list[T]:
    """One stands for all that are equal."""
    return values[:1] if values and values.count(values[0]) == len(values) else values


async def ask_permit(
    conn: Connection,
    worker: int,
    session: int,
    claims: Sequence[UUID],
    asking: Sequence[UUID],
    *,
    beat: bool,
    now: float,
    timeout: float,
) -> Permit:
    """What of the held `claims` may not be sent; `asking` are claim calls still under way; `beat` renews the lease."""
    row = await fetch_one(conn, sql.permit, worker, session, claims, asking, beat, timeout=timeout)
    return Permit(now, *row)
