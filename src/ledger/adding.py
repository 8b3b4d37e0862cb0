"""People for a campaign that is there: staged, then added in one transaction, or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import frozen

from ..database import Connection, fetch_one
from ..errors import ConflictError, DataError
from . import campaigns
from .audience import staging
from .audience.report import Report
from .audience.rows import BadRow, Row
from .audience.staging import Staged


@frozen
class NobodyError(DataError):
    """Not one of the rows can be written to; `report` says why."""

    message: str
    report: Report

    def __str__(self) -> str:
        return self.message


async def check_open(conn: Connection, campaign_id: int) -> None:
    """Whether a campaign takes people, asked before they are read. Raises NotFoundError, ConflictError."""
    if await campaigns.check_there(conn, campaign_id) == "cancelled":
        raise ConflictError(f"campaign {campaign_id} is cancelled and takes nobody any more")


async def stage(conn: Connection, campaign_id: int, rows: Iterable[Row | BadRow], *, source: str, unit: str) -> Staged:
    """Writes rows down for `add`; `conn` is in no transaction and holds them until then.

    Raises NobodyError when they are of no use, and nothing is left then.
    """
    staged = await staging.stage(conn, campaign_id=campaign_id, source=source, rows=rows)
    if staged.rows > staged.invalid:
        return staged
    report = Report.of({"invalid": staged.invalid}, await staging.read_lines(conn, staged.import_id), unit)
    await staging.discard(conn, staged.import_id)
    first = f"; {unit} {report.lines[0].line}: {report.lines[0].reason}" if report.lines else ""
    rows_ = f"none of the {report.rows:,} rows can be written to{first}" if report.rows else "there are no rows"
    raise NobodyError(f"nobody to write to: {rows_}", report)


async def add(conn: Connection, campaign_id: int, staged: Staged, *, unit: str) -> Report:
    """Makes recipients of staged rows, in the transaction that `conn` is in; a completed campaign is reopened by it.

    Raises ConflictError (PL002) where the campaign was cancelled meanwhile.
    """
    counts = dict(await fetch_one(conn, campaigns.sql.enqueue_import, campaign_id, staged.import_id))
    report = await staging.read_report(conn, staged.import_id, counts, unit)
    await staging.finish(conn, staged.import_id)
    return report
