"""What people and programs read: documents and tables on stdout, everything else on stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import UnavailableError


class ReaderGone(Exception):  # noqa: N818 - it names what happened, and nothing is wrong with it
    """Whoever read our output has enough. No OSError: the database's errors are such, and this is none of them."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise ReaderGone


stdout = _Console(highlight=False, soft_wrap=True)
stderr = _Console(stderr=True, highlight=False, soft_wrap=True)

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
    json_line(value)
    flush()


def json_line(value: Mapping[str, Any]) -> None:
    """One of many JSON documents on stdout, a line each; `flush` comes after the last."""
    data = orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)
    with _written():
        sys.stdout.buffer.write(data)


def flush() -> None:
    """What was written is out."""
    with _written():
        sys.stdout.flush()


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise UnavailableError(f"standard output cannot be written: {error.strerror}") from error


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
