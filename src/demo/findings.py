"""What the sample campaign must come to, by the rule that made its people, beside what it came to."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from ..database import Blocks, Connection
from ..ledger import campaigns
from ..projections.verify import Verification
from .people import Cast, Person

sql = Blocks("postledger.demo", "demo.sql")


@frozen
class Line:
    """One count. `why` says what the number is made of."""

    label: str
    expected: int
    actual: int
    why: str = ""

    @property
    def right(self) -> bool:
        return self.expected == self.actual


@frozen
class Findings:
    """All the counts of a run, what the audit said of it, and one recipient's history."""

    campaign_id: int
    campaign: str
    home: Path
    """Where the files of the run are."""
    lines: Sequence[Line]
    person: Person
    history: Sequence[Mapping[str, Any]]
    """Of that person's delivery; `copies`: of the mail, at the receiving server."""
    copies: int
    verification: Verification

    @property
    def good(self) -> bool:
        """Every count as expected, and the tables as the log says."""
        return self.verification.equal and all(line.right for line in self.lines)


async def compare(conn: Connection, campaign_id: int, cast: Cast, copies: Mapping[str, int]) -> list[Line]:
    """`copies`: accepted mails at the receiving server, by recipient."""
    counts = await campaigns.counts(conn, campaign_id)
    happened = await _happened(conn, campaign_id)
    refused, busy = cast.tagged("gone"), cast.tagged("busy")
    early, late = cast.tagged("cut-before-dot"), cast.tagged("cut-after-dot")
    sent = cast.count - refused - 1
    twice = sum(number == 2 for number in copies.values())
    open_ = counts["pending"] + counts["sending"]
    return [
        Line("recipients", cast.count, counts["audience"]),
        Line("sent", sent, counts["sent"]),
        Line("failed", refused, counts["failed"], "550 5.1.1, no such user"),
        Line("skipped", 1, counts["skipped"], "suppressed before the campaign"),
        Line("unknown, cancelled or open", 0, counts["unknown"] + counts["cancelled"] + open_),
        Line("answered 450, sent later", busy, happened["Deferred", "450 4.2.0"]),
        Line("cut off before the dot, sent later", early, happened["Deferred", "none"]),
        Line("cut off after the dot, sent again", late, happened["OutcomeUnknown", "no_final_reply"]),
        Line(
            "mails at the receiving server",
            sent + late,
            sum(copies.values()),
            "one for each, and the second copies",
        ),
        Line("recipients with a second copy", late, twice, "only where the outcome was unknown"),
        Line("recipients with too many or too few", 0, _astray(cast, copies)),
    ]


def _astray(cast: Cast, copies: Mapping[str, int]) -> int:
    due = dict(cast.mails())
    return sum(copies.get(address, 0) != due.get(address, 0) for address in {*due, *copies})


async def _happened(conn: Connection, campaign_id: int) -> Counter[tuple[str, str]]:
    rows = await conn.fetch(sql.tally, campaign_id)
    return Counter({(row["type"], row["code"]): row["times"] for row in rows})
