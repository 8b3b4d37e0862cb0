"""Reads kept payloads anew, after their reading was mended."""

from __future__ import annotations

from collections.abc import Callable

import asyncpg
import structlog
from attrs import define

from ...database import Connection, first_line
from ...ledger import feedback
from .notes import rows_of
from .reading import read

log = structlog.get_logger(__name__)

PAGE = 200


@define
class Reread:
    """How many payloads were read; items that were new, or read differently; payloads that are not wholly readable."""

    payloads: int = 0
    added: int = 0
    changed: int = 0
    faults: int = 0


async def reread_all(
    conn: Connection, *, provider: str | None, faults_only: bool, progress: Callable[[int], None] = lambda _: None
) -> Reread:
    """In the order in which they came, each in a transaction of its own: interrupted, it may begin anew at any time.

    A payload that the database cannot take stays as it was, and is counted under `faults`.
    """
    done = Reread()
    after = 0
    while page := await feedback.payloads(conn, after=after, provider=provider, faults_only=faults_only, limit=PAGE):
        for payload in page:
            after = payload.id
            rows, fault = rows_of(read(payload.provider, payload.payload), payload.provider)
            done.payloads += 1
            done.faults += fault is not None
            try:
                added, changed = await feedback.reread(conn, payload, rows, fault)
            except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError) as error:
                log.error("payload_not_reread", payload=payload.id, reason=first_line(error))
                done.faults += fault is None
                continue
            done.added += added
            done.changed += changed
        progress(done.payloads)
    return done
