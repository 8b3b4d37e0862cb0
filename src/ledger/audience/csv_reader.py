"""Reading people from CSV, in whichever encoding and dialect it was saved, in memory that stays flat."""

import csv
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from ...errors import DataError
from . import decoding
from .header import Columns, Dialect, read_header
from .lines import LINE_LIMIT, Lines, RecordTooLongError
from .rows import BadRow, Conversion, Row

# `"Ann" ,` is met where lines are written by hand.
_SPACE_BEHIND_QUOTE = re.compile(r'"[ \u00a0]+(?=[,;\t\r\n]|$)')


def read_csv(source: str | Path | BinaryIO, *, name: str | None = None) -> "CsvReader":
    """Open a file of people; iterate over what is returned for its rows, in order.

    `name` is what messages call the file. A stream is read from where it stands, and is left open. Blocks until
    the whole file was looked at once. Raises DataError when the header is of no use; later only when the file
    cannot be read on, or its quotes are beyond repair.
    """
    return CsvReader(source, name or (str(source) if isinstance(source, str | Path) else "the input"))


class CsvReader(Iterator[Row | BadRow]):
    """The rows of one file: Row for somebody to write to, BadRow for one that is of no use, and why.

    `line` is the physical line where a row begins, the header being on line 1. Empty lines are passed over.
    """

    encoding: str
    dialect: Dialect
    columns: Columns

    def __init__(self, source: str | Path | BinaryIO, name: str) -> None:
        self._name = name
        # The limit is one for the process, and lower than what a row may have.
        csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
        with ExitStack() as resources:
            self._lines = self._open(source, resources)
            self.dialect, self.columns = read_header(self._lines, name)
            self._convert = Conversion.of(self.columns)
            self._rows = self._read()
            self._resources = resources.pop_all()

    def __next__(self) -> Row | BadRow:
        try:
            return next(self._rows)
        except OSError as error:
            raise DataError(f"{self._name} cannot be read on: {error.strerror}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._resources.close()

    def _open(self, source: str | Path | BinaryIO, resources: ExitStack) -> Lines:
        try:
            stream = self._stream(source, resources)
            encoding = decoding.detect(stream, self._name)
            text = encoding.open(stream)
        except OSError as error:
            raise DataError(f"{self._name} cannot be read: {error.strerror}") from error
        resources.callback(text.detach)
        self.encoding = encoding.name
        return Lines(text, self._name, decoding.repair if encoding.mixed else None)

    def _stream(self, source: str | Path | BinaryIO, resources: ExitStack) -> BinaryIO:
        given = _opened(source, resources) if isinstance(source, str | Path) else source
        stream = decoding.seekable(given)
        if stream is not given:
            resources.enter_context(stream)
        return stream

    def _read(self) -> Iterator[Row | BadRow]:
        lines, convert = self._lines, self._convert
        with self._resources:
            while True:
                try:
                    for fields in self.dialect.parse(lines):
                        row = convert(lines.start, fields)
                        if isinstance(row, BadRow) and len(lines.record) > 1:
                            row = BadRow(row.line, f"{row.reason} (the row ends on line {lines.number})")
                        lines.accept()
                        if row is not None:
                            yield row
                    return
                except (csv.Error, RecordTooLongError) as error:
                    row = self._mend(error)
                    lines.rewind()
                    if row is not None:
                        yield row

    def _mend(self, error: Exception) -> Row | BadRow | None:
        """What became of the first line of a record whose quotes are wrong. The others get another chance."""
        line, record = self._lines.start, self._lines.record
        if len(record) == 1 and isinstance(error, RecordTooLongError):
            return BadRow(line, f"a line of more than {LINE_LIMIT} characters")
        if len(record) > 1 or record[0].count('"') % 2:
            return BadRow(line, "a quote that is opened on this line is not closed")
        try:
            fields = next(self.dialect.parse([_SPACE_BEHIND_QUOTE.sub('"', record[0])]))
        except csv.Error:
            return BadRow(line, "text behind a closing quote; write a quote inside a quoted field twice")
        return self._convert(line, fields)


def _opened(path: str | Path, resources: ExitStack) -> BinaryIO:
    return resources.enter_context(open(path, "rb"))
