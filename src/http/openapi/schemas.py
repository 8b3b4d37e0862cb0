"""Types as JSON Schema: the attrs classes of requests and answers, named once and referred to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from ...ledger.limits import SCHEMA
from ...ledger.public import Id, name_of
from ...ledger.senders import Rate
from .words import field_words

Schema = dict[str, Any]

_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    Any: {},
    object: {},
    Id: {"type": "string", "pattern": "^[0-9]{1,19}$", "examples": ["1"]},
    datetime: {"type": "string", "format": "date-time", "examples": ["2030-01-31T08:00:00.000000Z"]},
    timedelta: {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(ms|s|m|h|d)$", "examples": ["24h"]},
    Rate: {"type": "string", "pattern": "^[1-9][0-9]{0,5} ?/ ?[smhd]$", "examples": ["100/s"]},
}


class Schemas:
    """Schemas of types; those of classes stand once under `components/schemas`, and are referred to by name.

    What goes in has the fields that must be given and no others; what comes out has them all.
    """

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._names: dict[tuple[type, bool], str] = {}

    def of(self, kind: Any, *, incoming: bool) -> Schema:
        """The schema of a type."""
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if isinstance(kind, type) and attrs.has(kind):
            return {"$ref": f"#/components/schemas/{self._component(kind, incoming)}"}
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, UnionType):
            return self._union(arguments, incoming)
        if origin is not None and issubclass(origin, Mapping):
            values = self.of(arguments[1], incoming=incoming)
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        if origin is not None and issubclass(origin, Sequence | frozenset | set):
            return {"type": "array", "items": self.of(arguments[0], incoming=incoming)}
        raise TypeError(f"{kind!r} has no JSON Schema: say in schemas.py what it looks like")

    def _union(self, kinds: Sequence[Any], incoming: bool) -> Schema:
        schemas = [self.of(kind, incoming=incoming) for kind in kinds]
        simple = [schema for schema in schemas if isinstance(schema.get("type"), str)]
        if len(simple) == len(schemas) == 2 and schemas[1] == {"type": "null"}:
            return {**schemas[0], "type": [schemas[0]["type"], "null"]}
        return {"anyOf": schemas}

    def _component(self, cls: type, incoming: bool) -> str:
        known = self._names.get((cls, incoming))
        if known is not None:
            return known
        taken = set(self._names.values())
        name = next(one for one in _possible_names(cls, incoming) if one not in taken)
        self._names[cls, incoming] = name
        self.components[name] = {}  # its place, for a class that holds itself
        self.components[name] = self._object(cls, incoming)
        return name

    def _object(self, cls: type, incoming: bool) -> Schema:
        attrs.resolve_types(cls)
        words = field_words(cls)
        fields = attrs.fields(cls)
        schema: Schema = {
            "type": "object",
            "description": first_words(cls),
            "properties": {name_of(one): self._property(one, words.get(one.name), incoming) for one in fields},
        }
        required = [name_of(one) for one in fields if not incoming or one.default is attrs.NOTHING]
        if required:
            schema["required"] = required
        if incoming:
            schema["additionalProperties"] = False
        return schema

    def _property(self, attribute: attrs.Attribute[Any], words: str | None, incoming: bool) -> Schema:
        schema = self.of(attribute.type, incoming=incoming)
        limits = dict(attribute.metadata.get(SCHEMA, {})) if incoming else {}
        if "anyOf" in schema and limits:
            schema["anyOf"] = [{**schema["anyOf"][0], **limits}, *schema["anyOf"][1:]]
        else:
            schema.update(limits)
        if incoming and isinstance(attribute.default, str | int | bool):
            schema["default"] = attribute.default
        if words:
            schema["description"] = words
        return schema


def first_words(thing: Any) -> str:
    """The first paragraph of a docstring, in one line."""
    text = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    return re.sub(r"\s+", " ", text).strip()


def _possible_names(cls: type, incoming: bool) -> list[str]:
    module = cls.__module__.rpartition(".")[2].title().replace("_", "")
    plain = cls.__name__
    return [plain, f"{plain}{'Given' if incoming else 'Shown'}", f"{module}{plain}", f"{module}{plain}{incoming}"]
