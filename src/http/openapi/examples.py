"""An example of a request: the fields that must be given, and those whose class shows one."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import attrs

from ...ledger.limits import SCHEMA
from ...ledger.public import Id, name_of
from ...ledger.senders import Rate

_OF: dict[Any, Any] = {
    str: "...",
    int: 1,
    bool: False,
    float: 1.0,
    Id: "1",
    datetime: "2030-01-31T08:00:00.000000Z",
    timedelta: "24h",
    Rate: "100/s",
}


def example_of(kind: Any) -> Any:
    """A value of the type, as JSON knows it."""
    if kind in _OF:
        return _OF[kind]
    if isinstance(kind, type) and attrs.has(kind):
        return _object(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, UnionType):
        return example_of(arguments[0])
    if origin in (dict,) or (isinstance(origin, type) and origin.__name__ == "Mapping"):
        return {}
    return [example_of(arguments[0])] if arguments else {}


def _object(cls: type[Any]) -> dict[str, Any]:
    attrs.resolve_types(cls)
    found = {}
    for one in attrs.fields(cls):
        shown = one.metadata.get(SCHEMA, {}).get("examples")
        if shown:
            found[name_of(one)] = shown[0]
        elif one.default is attrs.NOTHING:
            found[name_of(one)] = example_of(one.type)
    return found
