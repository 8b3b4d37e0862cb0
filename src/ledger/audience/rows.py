"""One row of a file of people: checked, in normal form, and ready for the staging table."""

from collections.abc import Callable, Sequence
from operator import itemgetter

import orjson
from attrs import field, frozen

from ...messages.addresses import InvalidAddress, InvalidName, check_name, clean_text, normalise
from .header import Columns

KEY_LIMIT = 200
"""Characters in a key."""

DATA_LIMIT = 1 << 20
"""Bytes in the merge data of one person, as JSON."""


@frozen
class Row:
    """Somebody who may be written to; `key` is the address where none is given, `data` a JSON object."""

    line: int
    email: str
    key: str
    name: str | None
    data: bytes


@frozen
class BadRow:
    """A row that nobody can be written to by; its neighbours are unharmed."""

    line: int
    reason: str
    outcome: str = field(default="invalid", init=False)


class InvalidRowError(Exception):
    """Why a row is of no use."""


@frozen
class Conversion:
    """From the fields of a record to a Row; the plain case makes no detour: millions go through here."""

    _columns: Columns
    _pick: Callable[[Sequence[str]], dict[str, str]]

    @classmethod
    def of(cls, columns: Columns) -> "Conversion":
        return cls(columns, _picker(columns.data))

    def __call__(self, line: int, fields: list[str]) -> Row | BadRow | None:
        """None for a row in which nothing stands but delimiters."""
        columns = self._columns
        try:
            if len(fields) != columns.width:
                _fit(fields, columns.width)
            email = email_of(fields[columns.email])
            key = email if columns.key is None else key_of(fields[columns.key]) or email
            name = None if columns.name is None else name_of(fields[columns.name])
            return Row(line, email, key, name, self._data(fields))
        except (InvalidName, InvalidRowError) as error:
            if not any(map(str.strip, fields)):
                return None
            return BadRow(line, str(error))

    def _data(self, fields: Sequence[str]) -> bytes:
        data = _json(self._pick(fields))
        if b"\\u0000" in data:
            data = _json({name: clean_text(text) for name, text in self._pick(fields).items()})
        if len(data) > DATA_LIMIT:
            raise InvalidRowError(f"{len(data)} bytes of template data, at most {DATA_LIMIT} are kept")
        return data


def _json(texts: dict[str, str]) -> bytes:
    # Copied, since orjson writes into 1 KB and then shrinks it in place: the gaps it leaves fit nothing, and
    # a chunk of 10,000 rows would hold 10 MB.
    return bytes(memoryview(orjson.dumps(texts)))


def _picker(data: dict[str, int]) -> Callable[[Sequence[str]], dict[str, str]]:
    names, indexes = tuple(data), tuple(data.values())
    if not names:
        return lambda fields: {}
    if len(names) == 1:
        return lambda fields: {names[0]: fields[indexes[0]]}
    values = itemgetter(*indexes)
    return lambda fields: dict(zip(names, values(fields), strict=True))


def _fit(fields: list[str], width: int) -> None:
    """Empty fields at the right are a spreadsheet's habit; otherwise nothing is where it belongs."""
    while len(fields) > width and not fields[-1].strip():
        fields.pop()
    if len(fields) != width:
        raise InvalidRowError(f"{_counted(len(fields))} where the header has {_counted(width)}")


def _counted(columns: int) -> str:
    return "1 column" if columns == 1 else f"{columns} columns"


def email_of(text: str) -> str:
    """In normal form. Raises InvalidRowError."""
    try:
        return normalise(text.strip())
    except InvalidAddress as error:
        raise InvalidRowError(f"email: {error}") from error


def key_of(text: str) -> str:
    """What can be stored; empty where nothing was said. Raises InvalidRowError."""
    key = clean_text(text).strip()
    if len(key) > KEY_LIMIT:
        raise InvalidRowError(f"a key of {len(key)} characters, at most {KEY_LIMIT} are kept")
    return key


def name_of(text: str) -> str | None:
    """What can stand in a header. Raises InvalidName."""
    return check_name(clean_text(text).strip(" \t\u00a0")).strip() or None if text else None
