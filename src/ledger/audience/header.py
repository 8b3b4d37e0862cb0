"""The header of a file of people: which delimiter separates, and what each column means."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from ...errors import DataError
from ...messages.addresses import clean_text
from .lines import LINE_LIMIT, Lines

DELIMITERS = (",", ";", "\t")
ROLES = ("email", "key", "name")
RESERVED = ("campaign", "unsubscribe_url")
"""What letters call values of ours; a column of such a name would hide one, or be hidden."""

_HEADER_LINES = 32
_SHOWN = 10
_SEPARATOR_LINE = re.compile(r"sep=([,;\t])\s*", re.IGNORECASE)


@frozen
class Dialect:
    """How the lines are to be split; `spaced` says that a space follows each delimiter."""

    delimiter: str
    spaced: bool = False

    def parse(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Strict, since a quote that went wrong must not swallow the lines behind it unnoticed."""
        return csv.reader(lines, delimiter=self.delimiter, skipinitialspace=self.spaced, strict=True)


@frozen
class Columns:
    """Where in a row things are: indexes from 0, `data` by header name in the order of the file."""

    width: int
    email: int
    key: int | None
    name: int | None
    data: dict[str, int]


def read_header(lines: Lines, name: str) -> tuple[Dialect, Columns]:
    """Take the header off `lines`. Raises DataError, naming the columns, when it is of no use."""
    dialect = _skip_to_header(lines)
    head = lines.peek(_HEADER_LINES)
    if not head:
        raise DataError(f"{name} holds only empty lines: a header line with a column email is needed")
    if len(head[0]) > LINE_LIMIT:
        raise DataError(f"{name}, line {lines.number + 1}: the header is longer than {LINE_LIMIT} characters")
    try:
        dialect = dialect or _sniff(head)
        titles, taken = _parse(head, dialect)
    except csv.Error as error:
        raise DataError(f"{name}, line {lines.number + 1}: the header cannot be read: {error}") from error
    if taken > 1 and "".join(head[:taken]).count('"') % 2:
        raise DataError(f"{name}, line {lines.number + 1}: a quote in the header is not closed")
    lines.skip(taken)
    return dialect, read_titles([_tidy(title) for title in titles], f"{name}, line {lines.number - taken + 1}")


def _skip_to_header(lines: Lines) -> Dialect | None:
    """Pass over empty lines, and over the line `sep=;` by which Excel is told the delimiter."""
    named = None
    for line in _ahead(lines):
        if found := _SEPARATOR_LINE.fullmatch(line):
            named = Dialect(found[1])
        elif not _is_blank(line):
            break
        lines.skip(1)
    return named


def _ahead(lines: Lines) -> Iterator[str]:
    while head := lines.peek(1):
        yield head[0].lstrip("\ufeff")


def _is_blank(line: str) -> bool:
    return not line.strip("\ufeff \t\r\n\u00a0")


def _sniff(head: Sequence[str]) -> Dialect:
    """The delimiter that gives a column `email`, and of several the one that gives most named columns."""

    def merit(dialect: Dialect) -> tuple[bool, int]:
        titles = [_tidy(title) for title in _parse(head, dialect)[0]]
        return "email" in map(str.lower, titles), sum(map(bool, titles))

    best = max((Dialect(delimiter) for delimiter in DELIMITERS), key=merit)
    titles, _ = _parse(head, best)
    spaced = len(titles) > 1 and all(title.startswith(" ") for title in titles[1:])
    return Dialect(best.delimiter, spaced)


def _parse(head: Sequence[str], dialect: Dialect) -> tuple[list[str], int]:
    """The titles and how many lines they take. Lenient: titles are trimmed and compared, never sent."""
    head = [head[0].lstrip("\ufeff"), *head[1:]]
    reader = csv.reader(head, delimiter=dialect.delimiter, skipinitialspace=dialect.spaced)
    return next(reader), reader.line_num


def _tidy(title: str) -> str:
    return clean_text(title).strip("\ufeff").strip()


def read_titles(titles: Sequence[str], where: str) -> Columns:
    """What each column means by its title. Raises DataError, naming the columns, when they are of no use."""
    roles = {title.lower(): index for index, title in enumerate(titles) if title.lower() in ROLES}
    # A column without a name cannot be asked for by a letter: spreadsheets leave such at the right.
    data = {title: index for index, title in enumerate(titles) if title and title.lower() not in ROLES}
    _refuse_missing_email(titles, roles, where)
    _refuse_duplicates(titles, where)
    _refuse_reserved(data, where)
    return Columns(len(titles), roles["email"], roles.get("key"), roles.get("name"), data)


def _refuse_missing_email(titles: Sequence[str], roles: dict[str, int], where: str) -> None:
    if "email" in roles:
        return
    if any("@" in title for title in titles):
        raise DataError(f"{where}: an address stands where the header should be; put a line above it: email,name")
    found = _listed([title for title in titles if title])
    raise DataError(f"{where}: no column email, only {found}; rename the one with the addresses to email")


def _refuse_duplicates(titles: Sequence[str], where: str) -> None:
    names = Counter(title.lower() if title.lower() in ROLES else title for title in titles if title)
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise DataError(f"{where}: several columns are called {_listed(twice)}; keep one of each")


def _refuse_reserved(data: dict[str, int], where: str) -> None:
    taken = [name for name in data if name in RESERVED]
    if taken:
        raise DataError(f"{where}: {_listed(taken)} means something else in letters; rename the column")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:40]) for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown
