"""What the queue does, in plain Python: the model that test_queue_machine.py drives beside the real one."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from attrs import define, field, frozen

from tests.clock import NOON

CAMPAIGN_MOVES = {
    ("draft", "Started"): "sending",
    ("sending", "Paused"): "paused",
    ("paused", "Resumed"): "sending",
    ("draft", "Cancelled"): "cancelled",
    ("sending", "Cancelled"): "cancelled",
    ("paused", "Cancelled"): "cancelled",
}
LATE_SENT_APPLIES = ("pending", "unknown", "failed")
NOW = timedelta()


@frozen
class Entry:
    """An event in a delivery's log, as far as it decides anything."""

    version: int | None
    type: str
    attempt: int | None = None
    claim: UUID | None = None


@define
class Row:
    """One delivery."""

    id: int
    key: str
    email: str
    due_at: datetime | None
    status: str = "pending"
    attempt: int = 0
    log: list[Entry] = field(factory=lambda: [Entry(1, "Queued")])

    @property
    def version(self) -> int:
        return max(entry.version or 0 for entry in self.log)

    @property
    def columns(self) -> tuple[int, str, int, datetime | None, int]:
        return self.id, self.status, self.attempt, self.due_at, self.version

    def becomes(self, status: str, event: str, *, attempt: int | None = None, due_at: datetime | None = None,
                claim: UUID | None = None, body_attempt: int | None = None) -> None:  # fmt: skip
        """One change; `attempt` is for the row, `body_attempt` (else the same) is what the event carries."""
        self.log.append(Entry(self.version + 1, event, body_attempt or attempt, claim))
        self.status, self.due_at = status, due_at
        self.attempt = self.attempt if attempt is None else attempt

    def count(self, event: str) -> int:
        return sum(entry.type == event for entry in self.log)


@frozen
class Hold:
    """What a worker knows of a row that it claimed."""

    delivery: int
    claim: UUID
    fence: int
    attempt: int


@frozen
class Report:
    """An outcome of one hold."""

    hold: Hold
    type: str
    due_in: timedelta = NOW
    suppress: str | None = None

    @property
    def attempt(self) -> int | None:
        """As the event's body has it."""
        return None if self.type in ("Released", "Skipped") else self.hold.attempt


@define
class Taken:
    """A claim: its worker and what it took, all of which may have moved on."""

    worker: int
    holds: list[Hold]


@define
class Model:
    """One bulk campaign, its people and those who work on it."""

    hold_unknown: bool
    attempts: int
    now: datetime = NOON
    status: str = "draft"
    version: int = 1
    reason: str | None = None
    swept: bool = False
    rows: dict[int, Row] = field(factory=dict)
    claims: dict[UUID, Taken] = field(factory=dict)
    dead: set[int] = field(factory=set)
    suppressed: set[str] = field(factory=set)

    # The campaign.

    def change(self, event: str) -> bool:
        """Whether it may happen."""
        target = CAMPAIGN_MOVES.get((self.status, event))
        if target is None:
            return False
        self.moved(target)
        self.reason = "operator" if event == "Paused" else None
        return True

    def moved(self, status: str) -> None:
        self.status, self.version = status, self.version + 1

    def reopen(self) -> None:
        if self.status == "completed":
            self.moved("sending")

    def finish(self) -> bool:
        if any(row.due_at for row in self.rows.values()) or self.claims:
            return False
        if self.status == "cancelled":
            self.swept = True
            return True
        if self.status != "sending":
            return False
        self.moved("completed")
        return True

    # People.

    def sort(self, people: Sequence[tuple[str, str]]) -> list[str]:
        """The fate of each line: accepted, suppressed, duplicate_key or duplicate_address."""
        # Who was there before is older than any line. The oldest conflict counts, and the key before the address.
        keys = {row.key: -1 for row in self.rows.values()}
        emails = {row.email: -1 for row in self.rows.values()}
        fates = []
        for line, (key, email) in enumerate(people):
            key_age, email_age = keys.get(key), emails.get(email)
            if key_age is None and email_age is None:
                keys[key] = emails[email] = line
                fates.append("suppressed" if email in self.suppressed else "accepted")
            elif key_age is not None and (email_age is None or key_age <= email_age):
                fates.append("duplicate_key")
            else:
                fates.append("duplicate_address")
        return fates

    def add(self, people: Iterable[tuple[int, str, str, str]]) -> None:
        """Those who are new: id, key, address and fate."""
        added = False
        for id_, key, email, fate in people:
            self.rows[id_] = row = Row(id_, key, email, self.now)
            if fate == "suppressed":
                row.becomes("skipped", "Skipped")
            added = True
        if added:
            self.reopen()
            self.version += 1

    def requeue(self, ids: set[int] | None) -> int:
        chosen = [
            row
            for row in self.rows.values()
            if row.status in ("failed", "unknown")
            and row.email not in self.suppressed
            and (ids is None or row.id in ids)
        ]
        if chosen:
            self.reopen()
        for row in chosen:
            row.becomes("pending", "Requeued", attempt=0, due_at=self.now)
        return len(chosen)

    # Claims.

    def waiting(self) -> list[Row]:
        """Due first, or all of a cancelled campaign."""
        rows = sorted((row for row in self.rows.values() if row.due_at), key=lambda row: (row.due_at, row.id))
        return [row for row in rows if self.status == "cancelled" or row.due_at <= self.now]

    def next_due_in(self) -> timedelta | None:
        due = [row.due_at for row in self.rows.values() if row.due_at]
        return min(due) - self.now if due else None

    def claim(self, claim: UUID, worker: int, limit: int) -> tuple[list[Hold], int, int]:
        """What is taken, how many are skipped, how many cancelled."""
        if self.status not in ("sending", "cancelled"):
            return [], 0, 0
        rows = self.waiting()[:limit]
        if self.status == "cancelled":
            for row in rows:
                row.becomes("cancelled", "Cancelled")
            return [], 0, len(rows)
        refused = [row for row in rows if row.email in self.suppressed]
        for row in refused:
            row.becomes("skipped", "Skipped")
        holds = []
        for row in rows:
            if row.status == "pending":
                row.becomes("sending", "Claimed", claim=claim, body_attempt=row.attempt + 1)
                holds.append(Hold(row.id, claim, row.version, row.attempt + 1))
        if holds:
            self.claims[claim] = Taken(worker, holds)
        return holds, len(refused), 0

    def open_holds(self, claim: UUID) -> list[Hold]:
        return [hold for hold in self.claims[claim].holds if self.is_held(hold)]

    def is_held(self, hold: Hold) -> bool:
        row = self.rows[hold.delivery]
        return row.status == "sending" and row.version == hold.fence

    def forget_settled(self) -> None:
        self.claims = {claim: taken for claim, taken in self.claims.items() if self.open_holds(claim)}

    def end_claim(self, claim: UUID, event: str) -> int:
        """By its worker (Released) or after its worker's death (OutcomeUnknown)."""
        holds = self.open_holds(claim)
        for hold in holds:
            self._apply(Report(hold, event))
        self.forget_settled()
        return len(holds)

    # Outcomes.

    def settle(self, reports: Sequence[Report]) -> tuple[int, int, int]:
        """How many were applied, repeated, kept as evidence. What is in time goes first, as one set."""
        in_time = [report for report in reports if self.is_held(report.hold)]
        late = [report for report in reports if report not in in_time]
        for report in in_time:
            self._apply(report)
        answers = [self._late(report) for report in late]
        self.forget_settled()
        applied = len(in_time) + answers.count("applied")
        return applied, answers.count("repeated"), answers.count("evidence")

    def _apply(self, report: Report) -> None:
        row, due_at = self.rows[report.hold.delivery], self.now + report.due_in
        match report.type:
            case "Sent":
                row.becomes("sent", "Sent", attempt=report.attempt)
            case "Deferred":
                row.becomes("pending", "Deferred", attempt=report.attempt, due_at=due_at)
            case "Released":
                row.becomes("pending", "Released", due_at=due_at)
            case "Failed":
                row.becomes("failed", "Failed", attempt=report.attempt)
            case "Skipped":
                row.becomes("skipped", "Skipped")
            case "OutcomeUnknown":
                row.becomes("unknown", "OutcomeUnknown", attempt=report.attempt)
                self._follow_policy(row, due_at)
        if report.suppress:
            self.suppressed.add(row.email)

    def _follow_policy(self, row: Row, due_at: datetime) -> None:
        if self.hold_unknown or self.status == "cancelled":
            return
        if row.attempt < self.attempts:
            row.becomes("pending", "Requeued", due_at=due_at)
        else:
            row.becomes("failed", "Failed", attempt=row.attempt)

    def _late(self, report: Report) -> str:
        row, hold = self.rows[report.hold.delivery], report.hold
        if Entry(hold.fence + 1, report.type, report.attempt) in row.log:
            return "repeated"
        if Entry(None, report.type, claim=hold.claim) in row.log:
            return "repeated"
        if report.type == "Sent" and any(self._applied_late(row, entry, hold) for entry in row.log):
            return "repeated"
        if report.type == "Sent" and row.status in LATE_SENT_APPLIES:
            row.becomes("sent", "Sent", attempt=report.attempt)
            return "applied"
        row.log.append(Entry(None, report.type, claim=hold.claim))
        return "evidence"

    @staticmethod
    def _applied_late(row: Row, entry: Entry, hold: Hold) -> bool:
        """A Sent with this attempt, and no claim between this hold and it."""
        if entry.type != "Sent" or entry.version is None or entry.attempt != hold.attempt:
            return False
        claimed = [e.version for e in row.log if e.type == "Claimed" and e.version < entry.version]
        return entry.version > hold.fence and max(claimed) == hold.fence
