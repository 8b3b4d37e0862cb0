"""Objects in their public JSON form and back, as attrs classes; strict in reading, and telling what is wrong where."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

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

from ..events.text import write_moment
from . import lengths
from . import public_values as values
from .public_values import Id, Unfit
from .senders import Rate

__all__ = ["JSON_NAME", "Id", "Unfit", "Unreadable", "name_of", "named", "read", "read_answer", "read_text", "write"]

T = TypeVar("T")

JSON_NAME: Final = "json_name"


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


def _reader(whole: Any, truth: Any, *, strict: bool = True) -> Converter:
    converter = Converter(forbid_extra_keys=strict)
    for kind, hook in (
        (str, values.text),
        (int, whole),
        (bool, truth),
        (Id, values.id_),
        (datetime, values.moment),
        (timedelta, values.length),
        (Rate, values.rate),
        (type(None), values.nothing),
    ):
        converter.register_structure_hook(kind, hook)
    converter.register_structure_hook_func(_is_choice, values.choice)
    converter.register_structure_hook_func(lambda kind: kind == dict[str, Any], values.object_)
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
            raise Unfit(f"{values.said(value)} is no list", "write [...]")
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
            raise Unfit(f"{values.said(value)} is no object", "write {...}")
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


_READ = _reader(values.whole, values.truth)
_READ_ANSWER = _reader(values.whole, values.truth, strict=False)
_READ_TEXT = _reader(values.whole_text, values.truth_text)
_WRITE = _writer()
