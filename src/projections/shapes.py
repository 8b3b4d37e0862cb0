"""What a readable body is, as PostgreSQL can check it: only what fails there is decoded here."""

from datetime import datetime
from types import UnionType
from typing import Any, TypeAlias, get_args, get_origin

from attrs import fields

from ..events.codec import EXACT
from ..events.types import EVENTS, Event, StreamKind

Shape: TypeAlias = dict[str, Any]

# A day that its month does not have passes the expression; `datetime()` stops it.
_MOMENT = (
    '$.{name}.type() == "string" && '
    '$.{name} like_regex "^(?!0000)[0-9]{{4}}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])'
    'T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\\\\.[0-9]{{6}}Z$" && '
    'exists($.{name}.datetime("YYYY-MM-DD\\"T\\"HH24:MI:SS.US\\"Z\\""))'
)
_CONDITIONS = {
    str: '$.{name}.type() == "string"',
    # Whole or not jsonpath cannot tell (1.0): verify.sql looks at the text.
    int: '$.{name}.type() == "number" && $.{name} >= {least} && $.{name} <= {most}',
    datetime: _MOMENT,
}


def shapes(stream: StreamKind) -> list[Shape]:
    """One shape for each event of the stream: what its body must hold, may hold, and that it holds nothing else.

    A body that fits can be decoded. One that does not may still be readable - in a shape it had before - and has
    to be decoded to know.
    """
    return [_shape(cls) for cls in EVENTS if cls.stream is stream]


def _shape(cls: type[Event]) -> Shape:
    attributes = fields(cls)
    names = [_name(attribute) for attribute in attributes]
    conditions = [_condition(name, attribute) for name, attribute in zip(names, attributes, strict=True)]
    keys = [*names, "v"] if cls.shape > 1 else names
    shape = [f"$.v == {cls.shape}"] if cls.shape > 1 else []
    path = " && ".join(shape + conditions) or '$.type() == "object"'
    return {"type": cls.type, "versioned": cls.versioned, "keys": keys, "path": path}


def _name(attribute: Any) -> str:
    return str(attribute.name).removesuffix("_")  # class_


def _condition(name: str, attribute: Any) -> str:
    kind, optional = attribute.type, get_origin(attribute.type) is UnionType
    if optional:
        kind, _ = get_args(kind)
    least = getattr(attribute.validator, "bound", -EXACT)
    condition = _CONDITIONS[kind].format(name=name, least=least, most=EXACT)
    return f"(!exists($.{name}) || ({condition}))" if optional else condition
