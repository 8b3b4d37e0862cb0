"""Events to JSON bodies and back, through every shape a body has had."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

import orjson
from cattrs import Converter, transform_error
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.v import format_exception

from ..errors import PostledgerError
from .stream import Event, StreamKind
from .text import read_moment, scrub, write_moment
from .types import EVENTS, AnyEvent

Body: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[Body], Body]
Upcasters: TypeAlias = Mapping[tuple[StreamKind, str, int], Upcaster]

UPCASTERS: Upcasters = {}
"""(stream, type, n) -> the step from shape n of the body to n + 1. No body has changed its shape so far."""

EXACT = 2**53 - 1
"""The largest whole number that every JSON reader keeps exactly."""

E = TypeVar("E", bound=Event)


class UndecodableEvent(PostledgerError):  # noqa: N818 - it names what was found, not what was done
    """The log holds an event that this version cannot read."""

    def __init__(self, type_: str, reason: str) -> None:
        super().__init__(f"event {type_} cannot be read: {reason}")
        self.type = type_
        self.reason = reason


class Codec(Generic[E]):
    """Reads and writes the bodies of some event classes.

    Reading is exact: an unknown key, a missing one, text where a number belongs or the reverse is refused,
    because an audit of a log that is read with good will proves nothing.
    """

    def __init__(self, events: Iterable[type[E]], upcasters: Upcasters) -> None:
        self._classes = {(cls.stream, cls.type): cls for cls in events}
        self._upcasters = upcasters
        self._converter = _converter(self._classes.values())
        for stream, type_, shape in self._missing():
            raise ValueError(f"{stream} {type_}: no upcaster from shape {shape}")

    def body(self, event: E) -> Body:
        """The body as plain JSON values; what is None is left out."""
        body: Body = _storable(self._converter.unstructure(event))
        if event.shape > 1:
            body["v"] = event.shape
        return body

    def encode(self, event: E) -> bytes:
        """The body as JSON text. Raises TypeError or ValueError for what no body may hold."""
        return orjson.dumps(self.body(event))

    def decode(self, stream: StreamKind, type_: str, body: bytes | Mapping[str, Any]) -> E:
        """The event of this type; raises UndecodableEvent."""
        cls = self._classes.get((stream, type_))
        if cls is None:
            raise UndecodableEvent(type_, f"a {stream} has no such event")
        try:
            return self._converter.structure(self._current(cls, _parsed(body)), cls)
        except Exception as error:
            raise UndecodableEvent(type_, "; ".join(transform_error(error, "body", _said))) from error

    def _current(self, cls: type[E], body: Body) -> Body:
        """The body in the shape its class has today."""
        shape = body.pop("v", 1)
        if type(shape) is not int or not 1 <= shape <= cls.shape:
            raise ValueError(f"shape {shape!r} is not one of 1 to {cls.shape}")
        for older in range(shape, cls.shape):
            body = self._upcasters[cls.stream, cls.type, older](body)
        return body

    def _missing(self) -> Iterable[tuple[StreamKind, str, int]]:
        for (stream, type_), cls in self._classes.items():
            for shape in range(1, cls.shape):
                if (stream, type_, shape) not in self._upcasters:
                    yield stream, type_, shape


def _parsed(body: bytes | Mapping[str, Any]) -> Body:
    value = orjson.loads(body) if isinstance(body, bytes) else body
    if not isinstance(value, Mapping):
        raise TypeError("not an object")
    return dict(value)


def _said(error: BaseException, type_: type | None) -> str:
    if type_ is None and isinstance(error, TypeError | ValueError):
        return str(error.args[0])
    return format_exception(error, type_)


def _storable(value: Any) -> Any:
    """The value as the log may hold it: exact numbers, clean text, nothing else."""
    match value:
        case str():
            return scrub(value)
        case int():
            return _whole(value, int)
        case Mapping():
            return {scrub(key): _storable(item) for key, item in value.items()}
        case list() | tuple():
            return [_storable(item) for item in value]
        case _:
            raise TypeError(f"a {type(value).__name__} has no place in an event")


# The converter. Its own hooks would make "5" of 5 and a tuple of letters of a text: these take nothing but
# what they name.

_CLASS = override(rename="class")  # `class` is a keyword of Python


def _converter(classes: Iterable[type[Event]]) -> Converter:
    converter = Converter(forbid_extra_keys=True, omit_if_default=True)
    converter.register_structure_hook(str, _text)
    # A hook for `str` would take its subclasses too, and leave an enum's value plain and unchecked.
    converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))
    converter.register_structure_hook(int, _whole)
    converter.register_structure_hook_func(lambda kind: kind == tuple[str, ...], _texts)
    converter.register_structure_hook(datetime, lambda value, _: read_moment(value))
    converter.register_unstructure_hook(datetime, write_moment)
    for cls in classes:
        read = make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=True, class_=_CLASS)
        converter.register_structure_hook(cls, read)
        write = make_dict_unstructure_fn(cls, converter, _cattrs_omit_if_default=True, class_=_CLASS)
        converter.register_unstructure_hook(cls, write)
    return converter


def _text(value: object, _: type) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _whole(value: object, _: type) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("not a whole number")
    if abs(value) > EXACT:
        raise ValueError(f"{value} is beyond what JSON keeps exactly")
    return value


def _texts(value: object, _: type) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list of texts")
    return tuple(_text(item, str) for item in value)


_CODEC: Codec[AnyEvent] = Codec(EVENTS, UPCASTERS)

body_of = _CODEC.body
encode = _CODEC.encode
decode = _CODEC.decode
