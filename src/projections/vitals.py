"""How an installation is doing, by queries that stay cheap however much is in its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import asdict, frozen

from ..database import Blocks, Connection, fetch_one

sql = Blocks("postledger.projections", "vitals.sql")

STILL = 60.0
"""Seconds without any event after which a campaign with due rows counts as stuck."""

LATE = 60.0
"""The same for one that should have started."""


@frozen
class Queue:
    """One campaign that may have work; lengths of time in seconds, None where there is none.

    `due_for`: since its first row fell due, negative while it does not; `still_for`: since anything happened;
    `one_each`: by its sender's rate; `late`: since it should have started.
    """

    id: int
    status: str
    pause_reason: str | None
    resume_in: float | None
    late: float | None
    pending: int
    sending: int
    sent: int
    failed: int
    skipped: int
    cancelled: int
    unknown: int
    due_for: float | None
    still_for: float | None
    one_each: float | None


@frozen
class Vitals:
    """All of it at about one moment.

    `unsealed` events were committed and are in no block, 10,000 at most are counted; `snapshot_for`: for how long the
    oldest transaction has kept the server from clearing up, `snapshot_age` in transactions; `hidden` sessions this
    login may not look at.
    """

    block_no: int
    unsealed: int
    unsealed_for: float
    notifications: float
    behind: Mapping[str, int]
    queues: Sequence[Queue]
    workers: int
    deaf: int
    missing: int
    claims: int
    in_flight: int
    claimed_for: float
    snapshot_for: float
    snapshot_age: int
    hidden: int


@frozen
class Stuck:
    """A campaign that does not go on, and why."""

    id: int
    status: str
    cause: str


async def read(conn: Connection, *, timeout: float) -> Vitals:
    """Each query has `timeout` seconds."""
    queues = [Queue(*row) for row in await conn.fetch(sql.campaigns, timeout=timeout)]
    behind = {row["name"]: row["behind"] for row in await conn.fetch(sql.followers, timeout=timeout)}
    block_no, unsealed, unsealed_for, notifications = await fetch_one(conn, sql.now, timeout=timeout)
    workers = await fetch_one(conn, sql.workers, timeout=timeout)
    claims = await fetch_one(conn, sql.claims, timeout=timeout)
    snapshot = await fetch_one(conn, sql.snapshot, timeout=timeout)
    return Vitals(block_no, unsealed, unsealed_for, notifications, behind, queues, *workers, *claims, *snapshot)


def stuck(vitals: Vitals) -> list[Stuck]:
    """The campaigns that do not go on by themselves."""
    found = ((queue, cause_of(queue, vitals)) for queue in vitals.queues)
    return [Stuck(queue.id, queue.status, cause) for queue, cause in found if cause is not None]


def cause_of(queue: Queue, vitals: Vitals) -> str | None:
    """Why a campaign does not go on; None: it does, or it waits as somebody said it should."""
    nobody = "no worker is running: start 'postledger work'" if vitals.workers == 0 else None
    match queue.status:
        case "paused" if queue.pause_reason != "operator":
            again = "until somebody resumes it" if queue.resume_in is None else f"for {max(queue.resume_in, 0):.0f} s"
            return f"paused, {queue.pause_reason}, {again}"
        case "scheduled" if queue.late is not None and queue.late > LATE:
            return f"it should have started {queue.late:.0f} s ago; {nobody or 'see what the workers log'}"
        case "sending" if _is_still(queue):
            return f"rows are due for {queue.due_for:.0f} s and nothing happens; {nobody or 'see what the workers log'}"
        case _:
            return None


def _is_still(queue: Queue) -> bool:
    """A sender with a rate of one an hour may be silent for as long."""
    patience = max(STILL, 2 * (queue.one_each or 0.0))
    due, still = queue.due_for or 0.0, queue.still_for
    return due > patience and (still is None or still > patience)


def counts(queue: Queue) -> Mapping[str, int]:
    """By status."""
    names = ("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown")
    return {name: value for name, value in asdict(queue).items() if name in names}
