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
    unit: str = "line"
    """What the source calls a row: a file has lines."""

    def __attrs_post_init__(self) -> None:
        if self.rows != sum(self.counts.values()):
            raise ValueError(f"{self.counts} do not sum to {self.rows} rows")

    @classmethod
    def of(cls, counts: Mapping[str, int], lines: Sequence[Line], unit: str = "line") -> "Report":
        """From rows per outcome. A name that is none of OUTCOMES is a TypeError."""
        kept = sorted(lines, key=lambda line: line.line)[:LINES_KEPT]
        return cls(rows=sum(counts.values()), lines=tuple(kept), unit=unit, **counts)

    @property
    def counts(self) -> dict[str, int]:
        return {outcome: getattr(self, outcome) for outcome in OUTCOMES}

    @property
    def lines_omitted(self) -> int:
        return self.rows - self.accepted - len(self.lines)

    def to_json(self) -> dict[str, Any]:
        """The public form: counts are numbers, lines are {line, outcome, reason}."""
        return as_json(self.counts, self.lines, self.lines_omitted)

    def to_text(self) -> str:
        """For people: the counts that are not zero, and the first lines to look at."""
        return as_text(self.counts, self.lines, self.lines_omitted, self.unit)


def as_json(counts: Mapping[str, int], lines: Sequence[Line], omitted: int) -> dict[str, Any]:
    """What any import answers: its counts, which sum to `rows`, and lines to look at."""
    listed = [{"line": line.line, "outcome": line.outcome, "reason": line.reason} for line in lines]
    return {"rows": sum(counts.values()), **counts, "lines": listed, "lines_omitted": omitted}


def as_text(counts: Mapping[str, int], lines: Sequence[Line], omitted: int, unit: str) -> str:
    """The same for people."""
    words = ", ".join(f"{count:,} {_worded(outcome)}" for outcome, count in counts.items() if count)
    shown = [_sentence(line, unit) for line in lines[:_LINES_SHOWN]]
    hidden = len(lines) + omitted - len(shown)
    more = [f"  and {hidden:,} more (--json lists them)"] if hidden else []
    return "\n".join([f"{sum(counts.values()):,} rows: {words or 'nobody to write to'}", *shown, *more])


def _sentence(line: Line, unit: str) -> str:
    reason = f": {line.reason}" if line.reason else ""
    return f"  {unit} {line.line}: {_worded(line.outcome)}{reason}"


def _worded(outcome: str) -> str:
    return outcome.replace("_", " ")
