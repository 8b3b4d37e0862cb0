"""The report: counts that sum, lines within bounds, words for people."""

import pytest

from postledger.ledger.audience.report import LINES_KEPT, Line, Report

COUNTS = {"accepted": 230, "duplicate_key": 814, "duplicate_address": 1, "invalid": 1}


def test_counts_sum_to_the_rows() -> None:
    report = Report.of(COUNTS, [])
    assert (report.rows, report.accepted, report.suppressed) == (1046, 230, 0)
    assert sum(report.counts.values()) == report.rows


def test_counts_that_do_not_sum_are_refused() -> None:
    with pytest.raises(ValueError, match="do not sum to 7"):
        Report(rows=7, accepted=6)


def test_an_outcome_nobody_knows_is_refused() -> None:
    with pytest.raises(TypeError):
        Report.of({"accepted": 1, "lost": 1}, [])


def test_lines_are_in_the_order_of_the_file_and_bounded() -> None:
    lines = [Line(line, "invalid", "no @ in it") for line in range(LINES_KEPT + 5, 0, -1)]
    report = Report.of({"invalid": len(lines)}, lines)
    assert [line.line for line in report.lines] == list(range(1, LINES_KEPT + 1))
    assert report.lines_omitted == 5


def test_json() -> None:
    report = Report.of({"accepted": 1, "invalid": 2}, [Line(3, "invalid", "empty")])
    assert report.to_json() == {
        "rows": 3,
        "accepted": 1,
        "duplicate_key": 0,
        "duplicate_address": 0,
        "invalid": 2,
        "suppressed": 0,
        "lines": [{"line": 3, "outcome": "invalid", "reason": "empty"}],
        "lines_omitted": 1,
    }


def test_text_names_counts_lines_and_how_many_more() -> None:
    lines = [Line(7, "duplicate_key", "this key stands further up"), Line(9, "invalid")]
    assert Report.of(COUNTS, lines).to_text().splitlines() == [
        "1,046 rows: 230 accepted, 814 duplicate key, 1 duplicate address, 1 invalid",
        "  line 7: duplicate key: this key stands further up",
        "  line 9: invalid",
        "  and 814 more (--json lists them)",
    ]


def test_text_of_an_empty_file_and_of_a_clean_one() -> None:
    assert Report.of({}, []).to_text() == "0 rows: nobody to write to"
    assert Report.of({"accepted": 2}, []).to_text() == "2 rows: 2 accepted"


def test_text_is_short_however_much_is_wrong() -> None:
    lines = [Line(line, "invalid", "empty") for line in range(2, 5002)]
    text = Report.of({"invalid": 5000}, lines).to_text()
    assert len(text.splitlines()) == 22
    assert text.endswith("and 4,980 more (--json lists them)")
