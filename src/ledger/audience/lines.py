"""The physical lines of a file: of bounded length, numbered, and kept until their record is accepted."""

import io
from collections import deque
from collections.abc import Callable, Iterator

from attrs import define, field

from ...errors import DataError

LINE_LIMIT = 1 << 20
"""Characters in a record. A longer one is refused, so that no file decides how much memory is used."""

# How much is read again after broken quotes: four times the file as read so far, and this. Each reading costs
# up to LINE_LIMIT characters, so that a file of nothing but open quotes would take hours.
_REREAD_ALLOWANCE = 16 << 20
_REREAD_RATIO = 4


class RecordTooLongError(Exception):
    """The lines of one record exceed LINE_LIMIT: a quote was not closed, or somebody is hostile."""


@define
class Lines:
    """Iterating hands out lines; `accept` ends a record, `rewind` takes back its lines but the first."""

    _text: io.TextIOWrapper
    _name: str
    _repair: Callable[[str], str] | None = None
    number: int = 0
    record: list[str] = field(factory=list, init=False)
    _again: deque[str] = field(factory=deque, init=False)
    _fresh: int = field(default=0, init=False)
    _reread: int = field(default=0, init=False)

    @property
    def start(self) -> int:
        """The line where the current record begins; 1 is the first line of the file."""
        return self.number - len(self.record) + 1

    def __iter__(self) -> Iterator[str]:
        again, record, fetch = self._again, self.record, self._fetch
        size = 0
        while line := again.popleft() if again else fetch():
            self.number += 1
            size = len(line) if not record else size + len(line)
            record.append(line)
            if size > LINE_LIMIT:
                raise RecordTooLongError
            yield line

    def peek(self, count: int) -> list[str]:
        """The next lines, at most `count`, without taking them."""
        while len(self._again) < count and (line := self._fetch()):
            self._again.append(line)
        return list(self._again)[:count]

    def skip(self, count: int) -> None:
        """Take `count` lines that were peeked at."""
        for _ in range(count):
            self._again.popleft()
        self.number += count

    def accept(self) -> None:
        self.record.clear()

    def rewind(self) -> None:
        """After a broken quote: all lines but the first are read afresh, so that neighbours are unharmed."""
        rest = self.record[1:]
        self._reread += sum(map(len, rest))
        if self._reread > _REREAD_ALLOWANCE + _REREAD_RATIO * self._fresh:
            raise DataError(
                f"{self._name}, line {self.start}: too many quotes that are not closed, the last one here; "
                "write a quote inside a quoted field twice"
            )
        self._again.extendleft(reversed(rest))
        self.number -= len(rest)
        self.record.clear()

    def _fetch(self) -> str:
        line = self._text.readline(LINE_LIMIT + 1)
        if len(line) > LINE_LIMIT and not line.endswith(("\n", "\r")):
            self._skip_rest()
        self._fresh += len(line)
        return self._repair(line) if self._repair else line

    def _skip_rest(self) -> None:
        while piece := self._text.readline(LINE_LIMIT):
            if piece.endswith(("\n", "\r")):
                return
