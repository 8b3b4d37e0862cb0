"""What became of each row of an import: counts, and the lines that somebody may want to mend."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

LINES_KEPT = 10_000
_LINES_SHOWN = 20

OUTCOMES = ("accepted", "duplicate_key", "duplicate_address", "invalid", "suppressed")


@frozen
class Line:
    """A row that was not accepted: where it begins in the file, what became of it, and why."""

    line: int
    outcome: str
    reason: str | None = None


@frozen
class Report:
    """Five counts that sum to `rows`, and the first 10,000 lines that were not accepted, in file order."""

    rows: int
    accepted: int = 0
    duplicate_key: int = 0
    duplicate_address: int = 0
    invalid: int = 0
    suppressed: int = 0
    lines: Sequence[Line] = ()

    def __attrs_post_init__(self) -> None:
        if self.rows != sum(self.counts.values()):
            raise ValueError(f"{self.counts} do not sum to {self.rows} rows")

    @classmethod
    def of(cls, counts: Mapping[str, int], lines: Sequence[Line]) -> "Report":
        """From rows per outcome. A name that is none of OUTCOMES is a TypeError."""
        kept = sorted(lines, key=lambda line: line.line)[:LINES_KEPT]
        return cls(rows=sum(counts.values()), lines=tuple(kept), **counts)

    @property
    def counts(self) -> dict[str, int]:
        return {outcome: getattr(self, outcome) for outcome in OUTCOMES}

    @property
    def lines_omitted(self) -> int:
        return self.rows - self.accepted - len(self.lines)

    def to_json(self) -> dict[str, Any]:
        """The public form: counts are numbers, lines are {line, outcome, reason}."""
        lines = [{"line": line.line, "outcome": line.outcome, "reason": line.reason} for line in self.lines]
        return {"rows": self.rows, **self.counts, "lines": lines, "lines_omitted": self.lines_omitted}

    def to_text(self) -> str:
        """For people: the counts that are not zero, and the first lines to look at."""
        counts = ", ".join(f"{count:,} {_worded(outcome)}" for outcome, count in self.counts.items() if count)
        shown = [_sentence(line) for line in self.lines[:_LINES_SHOWN]]
        hidden = self.rows - self.accepted - len(shown)
        more = [f"  and {hidden:,} more (--json lists them)"] if hidden else []
        return "\n".join([f"{self.rows:,} rows: {counts or 'nobody to write to'}", *shown, *more])


def _sentence(line: Line) -> str:
    reason = f": {line.reason}" if line.reason else ""
    return f"  line {line.line}: {_worded(line.outcome)}{reason}"


def _worded(outcome: str) -> str:
    return outcome.replace("_", " ")
