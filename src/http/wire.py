"""Requests to values and values to answers: strict, and with words for whoever wrote the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from aiohttp import web

from ..ledger.public import Unreadable, read, read_text, write
from .problems import Problem

T = TypeVar("T")

JSON = "application/json"


async def read_body(request: web.Request, cls: type[T]) -> T:
    """The JSON body as a value of the attrs class. Raises Problem, which names the field and the remedy."""
    return _read(read, await read_object(request), cls)


async def read_object(request: web.Request) -> dict[str, Any]:
    """The JSON body, an object; without a body the empty one."""
    data = await request.read()
    if not data.strip():
        return {}
    if request.content_type != JSON:
        raise Problem(
            "unsupported-media-type",
            f"the body is {request.content_type}",
            remedy=f"send JSON with Content-Type: {JSON}",
        )
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise Problem(
            "malformed",
            f"the body is no JSON: {error.msg} at line {error.lineno}, column {error.colno}",
            remedy="send one JSON object in UTF-8",
        ) from None
    if not isinstance(value, dict):
        raise Problem("invalid", "the body is no JSON object", remedy="send an object with named fields")
    return value


async def read_given(request: web.Request, cls: type[T]) -> tuple[T, frozenset[str]]:
    """The same for a PATCH: with the names, as in JSON, of the fields that were there."""
    value = await read_object(request)
    return _read(read, value, cls), frozenset(value)


def read_query(request: web.Request, cls: type[T]) -> T:
    """The query's parameters, each once at most. Raises Problem."""
    found: dict[str, str] = {}
    for name, value in request.query.items():
        if name in found:
            raise Problem("invalid", f"{name} is given twice", field=name, remedy="give it once")
        found[name] = value
    return _read(read_text, found, cls)


def read_id(request: web.Request, name: str = "id") -> int:
    """A number from the path; one that cannot be is a thing that is not there."""
    text = request.match_info[name]
    if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0):
        raise Problem("not-found", f"{text[:40]!r} is no id", field=name, remedy="ids are decimal numbers")
    return int(text)


def answer(value: Any, status: int = 200, *, headers: Mapping[str, str] | None = None) -> web.Response:
    """An attrs value, or what JSON knows, as JSON: ids as strings, times RFC 3339."""
    return web.Response(status=status, body=dump(value), content_type=JSON, headers=headers)


def dump(value: Any) -> bytes:
    """The same as bytes."""
    return orjson.dumps(write(value))


def _read(structure: Any, value: Any, cls: type[T]) -> T:
    try:
        found: T = structure(value, cls)
    except Unreadable as error:
        raise Problem("invalid", f"{error.field}: {error.reason}", field=error.field, remedy=error.remedy) from None
    return found
