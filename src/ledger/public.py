"""Values in their public JSON form and back: names, ids as strings, times, lengths, rates; strict in reading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import UnionType
from typing import Any, Final, Literal, NewType, TypeVar, Union, get_args, get_origin

import attrs
from attrs import frozen
from cattrs import Converter
from cattrs.errors import (
    AttributeValidationNote,
    ClassValidationError,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

from ..events.text import scrub, write_moment
from . import lengths, moments
from .senders import Rate

T = TypeVar("T")

Id = NewType("Id", int)
"""A number of ours, outside a string of digits."""

JSON_NAME: Final = "json_name"
BIGGEST: Final = 2**63 - 1
DEEPEST: Final = 50
"""Levels of an object that is kept as it is; parsers and databases have limits too, but none to rely on."""


def named(name: str, **options: Any) -> Any:
    """A field whose public name is no word that Python allows: `from`."""
    return attrs.field(metadata={JSON_NAME: name}, **options)


def name_of(attribute: attrs.Attribute[Any]) -> str:
    """A field's public name."""
    name: str = attribute.metadata.get(JSON_NAME, attribute.name)
    return name


@frozen
class Unreadable(Exception):  # noqa: N818 - it says what was found
    """A value that is not acceptable: its place as in `recipients[3].email`, why, and what to write."""

    field: str
    reason: str
    remedy: str | None = None


class Unfit(ValueError):  # noqa: N818 - as above
    """Why one value is not acceptable; whoever knows its place makes it Unreadable."""

    def __init__(self, reason: str, remedy: str | None = None, field: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy
        self.field = field
        """Where whoever checks a whole object knows which of its fields it is."""


def read(value: Any, cls: type[T]) -> T:
    """What JSON said, as a value of the attrs class. Raises Unreadable."""
    return _structured(_READ, value, cls)


def read_answer(value: Any, cls: type[T]) -> T:
    """The same of what a service answered, which may be newer: fields that are not known are passed over."""
    return _structured(_READ_ANSWER, value, cls)


def read_text(values: Mapping[str, str], cls: type[T]) -> T:
    """The same of texts alone, as a query string has them: numbers and truths are written out."""
    return _structured(_READ_TEXT, values, cls)


def write(value: Any) -> Any:
    """A value as JSON knows it."""
    return _WRITE.unstructure(value)


def _structured(converter: Converter, value: Any, cls: type[T]) -> T:
    try:
        return converter.structure(value, cls)
    except Exception as error:
        found = _first(error, "", cls)
        if found is None:
            raise
        raise found from None


def _first(error: BaseException, place: str, cls: Any) -> Unreadable | None:
    """The first thing that is wrong, with its place; None: it is no fault of the value's."""
    match error:
        case ClassValidationError():
            inner = sorted(error.exceptions, key=lambda one: not isinstance(one, ForbiddenExtraKeysError))[0]
            return _first(inner, _inside(inner, place, error.cl), error.cl)
        case IterableValidationError():
            inner = error.exceptions[0]
            return _first(inner, _inside(inner, place, error.cl), error.cl)
        case _AtItem():
            return _first(error.error, f"{place}[{error.index}]", cls)
        case ForbiddenExtraKeysError():
            known = ", ".join(name_of(attribute) for attribute in attrs.fields(error.cl))
            extra = min(error.extra_fields)
            return Unreadable(_joined(place, extra), "no such field", f"leave it out; there are {known}")
        case KeyError():
            return Unreadable(place, "missing", "give it")
        case Unfit():
            where = _joined(place, error.field) if error.field else place
            return Unreadable(where or "the value", error.reason, error.remedy)
        case ValueError() | TypeError():
            return Unreadable(place or "the value", str(error))
    return None


def _inside(error: BaseException, place: str, cls: Any) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            by_name = {a.name: name_of(a) for a in attrs.fields(cls)} if attrs.has(cls) else {}
            return _joined(place, by_name.get(note.name, note.name))
        if isinstance(note, IterableValidationNote):
            return f"{place}[{note.index}]" if isinstance(note.index, int) else _joined(place, str(note.index))
    return place


def _joined(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


# What may be read. JSON's own types are taken as they are, never made of each other: "5" is no number.


def _text(value: object, _: Any = None) -> str:
    if not isinstance(value, str):
        raise Unfit(f"{_said(value)} is no text", "write a string")
    return scrub(value)


def _whole(value: object, _: Any = None) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Unfit(f"{_said(value)} is no whole number", "write a number without quotes or fraction")
    if abs(value) > BIGGEST:
        raise Unfit(f"{value} is too large", "write a smaller one")
    return value


def _truth(value: object, _: Any = None) -> bool:
    if not isinstance(value, bool):
        raise Unfit(f"{_said(value)} is neither true nor false", "write true or false")
    return value


def _id(value: object, _: Any = None) -> Id:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,19}", value) or int(value) > BIGGEST:
        raise Unfit(f"{_said(value)} is no id", "write it as it was given, a string of digits")
    return Id(int(value))


def _moment(value: object, _: Any = None) -> datetime:
    try:
        return moments.read(_text(value)).at
    except moments.UnreadableMoment as error:
        raise _unfit(error) from None


def _length(value: object, _: Any = None) -> timedelta:
    try:
        return lengths.read(_text(value))
    except Unfit:
        raise
    except ValueError as error:
        raise _unfit(error) from None


def _rate(value: object, _: Any = None) -> Rate:
    try:
        return Rate.read(_text(value))
    except Unfit:
        raise
    except ValueError as error:
        raise _unfit(error) from None


def _unfit(error: ValueError) -> Unfit:
    """What our own readers say: what is wrong, a colon, and what to write."""
    reason, _, remedy = str(error).rpartition(": ")
    return Unfit(reason, remedy) if reason else Unfit(remedy)


def _nothing(value: object, _: Any = None) -> None:
    if value is not None:
        raise Unfit(f"{_said(value)} is not null", "write null")


def _choice(value: object, kind: Any) -> Any:
    allowed = get_args(kind)
    if value not in allowed or isinstance(value, bool) != any(isinstance(one, bool) for one in allowed):
        raise Unfit(f"{_said(value)} is not known here", f"write one of {', '.join(map(str, allowed))}")
    return value


def _object(value: object, _: Any = None) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit(f"{_said(value)} is no object", "write {...}")
    return {scrub(name): _clean(item, 1) for name, item in value.items()}


def _clean(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise Unfit(f"nested deeper than {DEEPEST} levels", "make it flatter")
    match value:
        case str():
            return scrub(value)
        case dict():
            return {scrub(name): _clean(item, depth + 1) for name, item in value.items()}
        case list():
            return [_clean(item, depth + 1) for item in value]
    return value


def _said(value: object) -> str:
    """Enough of a value to know it by, never all of it."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _whole_text(value: object, _: Any = None) -> int:
    if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise Unfit(f"{_said(value)} is no whole number", "write digits")
    return int(value)


def _truth_text(value: object, _: Any = None) -> bool:
    if value not in ("true", "false"):
        raise Unfit(f"{_said(value)} is neither true nor false", "write true or false")
    return value == "true"


def _reader(whole: Any, truth: Any, *, strict: bool = True) -> Converter:
    converter = Converter(forbid_extra_keys=strict)
    for kind, hook in (
        (str, _text),
        (int, whole),
        (bool, truth),
        (Id, _id),
        (datetime, _moment),
        (timedelta, _length),
        (Rate, _rate),
        (type(None), _nothing),
    ):
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_func(_is_choice, _choice)
    converter.register_structure_hook_func(lambda kind: kind == dict[str, Any], _object)
    converter.register_structure_hook_factory(_is_several, lambda kind: _several(converter, kind))
    converter.register_structure_hook_factory(_is_optional, lambda kind: _optional(converter, kind))
    converter.register_structure_hook_factory(
        lambda kind: attrs.has(kind) and kind is not Rate, lambda cls: _class_reader(cls, converter, strict)
    )
    return converter


def _is_choice(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _is_optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType) and len(get_args(kind)) == 2 and type(None) in get_args(kind)


def _optional(converter: Converter, kind: Any) -> Any:
    inner = next(one for one in get_args(kind) if one is not type(None))
    hook = converter.get_structure_hook(inner)
    return lambda value, _: None if value is None else hook(value, inner)


def _is_several(kind: Any) -> bool:
    return get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis


def _several(converter: Converter, kind: Any) -> Any:
    """A list, of nothing else: cattrs would take a text for its letters, and an object for its names."""
    inner = get_args(kind)[0]
    hook = converter.get_structure_hook(inner)

    def structure(value: object, _: Any) -> Any:
        if not isinstance(value, list):
            raise Unfit(f"{_said(value)} is no list", "write [...]")
        return tuple(_item(hook, inner, index, item) for index, item in enumerate(value))

    return structure


def _item(hook: Any, inner: Any, index: int, item: object) -> Any:
    try:
        return hook(item, inner)
    except Exception as error:
        raise _AtItem(index, error) from error


class _AtItem(Exception):  # noqa: N818 - it says where
    """Something is wrong with an item of a list."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index)
        self.index = index
        self.error = error


def _class_reader(cls: type[Any], converter: Converter, strict: bool) -> Any:
    structure = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=strict, **_renamed(cls))

    def checked(value: Any, kind: Any) -> Any:
        if not isinstance(value, Mapping):
            raise Unfit(f"{_said(value)} is no object", "write {...}")
        return structure(value, kind)

    return checked


def _renamed(cls: type[Any]) -> dict[str, Any]:
    return {
        attribute.name: override(rename=attribute.metadata[JSON_NAME])
        for attribute in attrs.fields(cls)
        if JSON_NAME in attribute.metadata
    }


def _writer() -> Converter:
    converter = Converter()
    converter.register_unstructure_hook(Id, str)
    converter.register_unstructure_hook(datetime, write_moment)
    converter.register_unstructure_hook(timedelta, lengths.write)
    converter.register_unstructure_hook(Rate, str)
    converter.register_unstructure_hook_factory(
        lambda kind: attrs.has(kind) and kind is not Rate,
        lambda cls: make_dict_unstructure_fn(cls, converter, **_renamed(cls)),
    )
    return converter


_READ = _reader(_whole, _truth)
_READ_ANSWER = _reader(_whole, _truth, strict=False)
_READ_TEXT = _reader(_whole_text, _truth_text)
_WRITE = _writer()
