"""Reading people from JSON: a line for each (NDJSON), in memory that stays flat, or one list."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import orjson

from ...errors import DataError
from ...messages.addresses import InvalidName, clean_data
from .header import RESERVED, ROLES
from .rows import DATA_LIMIT, BadRow, InvalidRowError, Row, email_of, key_of, name_of

LINE_LIMIT = 2 << 20
"""Bytes in a line: twice what a person's data may have."""

_EXACT = 2.0**63
_TYPES = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}


def read_ndjson(stream: BinaryIO) -> Iterator[Row | BadRow]:
    """The rows of a stream with a JSON object on each line, in order; empty lines are passed over.

    `line` counts from 1. Besides email, key and name, what an object holds is template data under its name, as the
    other columns of a CSV file are; an object `data` is taken apart into its own names.
    """
    number = 0
    while line := stream.readline(LINE_LIMIT + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > LINE_LIMIT and not line.endswith(b"\n"):
            _skip_rest(stream)
            yield BadRow(number, f"a line of more than {LINE_LIMIT} bytes")
        elif not line.isspace() and line:
            yield _read_line(number, line)


def read_list(body: bytes, name: str) -> Iterator[Row | BadRow]:
    """The rows of one JSON document, a list of such objects or {"items": [...]}; `line` is the number of the item.

    Raises DataError at once for a document that is neither.
    """
    try:
        document = _parsed(body.removeprefix(codecs.BOM_UTF8))
    except ValueError as error:
        raise DataError(f"{name} is no JSON ({error}): send a list of {{email, key, name, ...}}") from error
    items = document.get("items") if isinstance(document, dict) and document.keys() == {"items"} else document
    if not isinstance(items, list):
        raise DataError(f'{name} is {_kind(document)}: send a list of {{email, key, name, ...}}, or {{"items": [...]}}')
    return (_checked(number, item) for number, item in enumerate(items, 1))


def _skip_rest(stream: BinaryIO) -> None:
    while piece := stream.readline(LINE_LIMIT):
        if piece.endswith(b"\n"):
            return


def _read_line(number: int, line: bytes) -> Row | BadRow:
    try:
        return _checked(number, _parsed(line))
    except ValueError as error:
        return BadRow(number, f"no JSON: {error}")


def _parsed(text: bytes) -> Any:
    """Raises ValueError. NUL and lone surrogates, which PostgreSQL cannot keep, become U+FFFD."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"\\ud" not in text and b"\\uD" not in text:
            raise ValueError(error.msg) from error
        try:
            return clean_data(json.loads(text, parse_constant=_refuse))
        except RecursionError:
            raise ValueError("nested too deeply") from None
    return clean_data(value) if b"\\u0000" in text else value


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON value")


def _checked(number: int, person: Any) -> Row | BadRow:
    try:
        return _row(number, person)
    except (InvalidRowError, InvalidName) as error:
        return BadRow(number, str(error))


def _row(number: int, person: Any) -> Row:
    if not isinstance(person, dict):
        raise InvalidRowError(f"{_kind(person)}, where an object {{email, key, name, ...}} belongs")
    email = email_of(_text(person, "email") or "")
    key, name = _text(person, "key"), _text(person, "name")
    return Row(number, email, key_of(key or "") or email, name_of(name or ""), _data(person))


def _text(person: Mapping[str, Any], name: str) -> str | None:
    value = person.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidRowError(f"{name}: {_kind(value)}, where a text belongs")
    return value


def _data(person: Mapping[str, Any]) -> bytes:
    data = {name: value for name, value in person.items() if name not in ROLES and name != "data"}
    own = person.get("data")
    if isinstance(own, dict):
        if twice := data.keys() & own.keys():
            raise InvalidRowError(f"data: {min(twice)!r} stands in it and beside it; keep one of them")
        data |= own
    elif own is not None:
        raise InvalidRowError(f"data: {_kind(own)}, where an object belongs")
    for name in RESERVED:
        if name in data:
            raise InvalidRowError(f"{name}: means something else in letters; call it something else")
    for name, value in data.items():
        if not isinstance(value, str):
            _check_numbers(name, value)
    try:
        # Copied, as in rows.py: orjson shrinks its kilobyte in place.
        written = bytes(memoryview(orjson.dumps(data)))
    except TypeError as error:
        raise InvalidRowError("data: nested too deeply") from error
    if len(written) > DATA_LIMIT:
        raise InvalidRowError(f"{len(written)} bytes of template data, at most {DATA_LIMIT} are kept")
    return written


def _check_numbers(name: str, value: Any) -> None:
    """A whole number that is read as a float is not what it was."""
    match value:
        case float() if abs(value) >= _EXACT:
            raise InvalidRowError(f"{name}: a number of more than 64 bits, which would be rounded; write it as a text")
        case dict():
            for item in value.values():
                _check_numbers(name, item)
        case list():
            for item in value:
                _check_numbers(name, item)


def _kind(value: Any) -> str:
    return "null" if value is None else _TYPES[type(value)]
