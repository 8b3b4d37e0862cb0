"""What people and programs read: documents and tables on stdout, everything else on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

stdout = Console(highlight=False, soft_wrap=True)
stderr = Console(stderr=True, highlight=False, soft_wrap=True)

_BREAKS = re.compile(r"\s*[\r\n\u2028\u2029]+\s*")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def one_line(text: str) -> str:
    """Without line breaks, and without what a terminal would obey instead of showing."""
    return _CONTROLS.sub("\ufffd", _BREAKS.sub(" ", text.strip()))


def complain(line: str) -> None:
    """The one line that says what is wrong."""
    stderr.print(Text(f"postledger: {one_line(line)}"))


def note(line: str) -> None:
    """Something a person may want to know; on stderr, so that stdout stays clean."""
    stderr.print(Text(one_line(line)))


def say(text: str) -> None:
    """A command's answer to a person."""
    stdout.print(Text(_CONTROLS.sub("\ufffd", text)))


def document(value: Mapping[str, Any]) -> None:
    """One JSON document on stdout."""
    sys.stdout.flush()
    sys.stdout.buffer.write(orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A short table; whole cells, however narrow the terminal says it is."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", no_wrap=True)
    for row in rows:
        drawn.add_row(*(Text(one_line(str("" if cell is None else cell))) for cell in row))
    measured = drawn.__rich_measure__(stdout, stdout.options.update(max_width=10_000)).maximum
    # A console of its own: the width that print() takes cannot be more than the terminal's.
    wide = Console(width=max(measured, 1), highlight=False)
    wide.print(drawn, crop=False, overflow="ignore", no_wrap=True)


def number(count: int) -> str:
    """1,234,567"""
    return f"{count:,}"
