"""The OpenAPI 3.1 document: each line of the route table as an operation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from ...ledger.limits import SCHEMA
from ...ledger.public import name_of
from ..problems import KINDS
from ..route import Route
from .examples import example_of
from .schemas import Schema, Schemas, first_words
from .words import field_words

ABOUT = """\
Campaigns, messages and their history. Every request shows a key, `Authorization: Bearer KEY`, made by
`postledger keys create`; its scopes say what it opens. Ids, positions and cursors are strings, times are RFC 3339 in
UTC with microseconds. Unknown fields are refused. What is wrong is answered as an RFC 9457 problem that names the field
and the remedy. A list answers `items` and `next`: hand `next` back as `after` until it is null.
"""

PROBLEM: Schema = {
    "type": "object",
    "description": "What is wrong (RFC 9457), in which field, and what to do about it.",
    "properties": {
        "type": {"enum": [f"/problems/{name}" for name in KINDS], "description": "Which kind: never changes."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "This one, in words."},
        "field": {"type": "string", "description": "The value's place, as in recipients[3].email."},
        "remedy": {"type": "string", "description": "What to do."},
    },
    "required": ["type", "title", "status", "detail"],
}

_ALWAYS = ("internal", "unavailable", "too-many-requests")
_KEYED = ("unauthorized", "forbidden")
_WITH_BODY = ("malformed", "request-timeout", "too-large", "unsupported-media-type", "invalid")
_WITH_KEY = ("in-progress", "key-reused")
_HEADERS = {
    401: {"WWW-Authenticate": "How to show a key."},
    405: {"Allow": "The methods that there are."},
    429: {"Retry-After": "Seconds."},
    503: {"Retry-After": "Seconds."},
}
_PARAMETER = re.compile(r"\{(\w+)(?::[^{}]*(?:\{[^{}]*\}[^{}]*)*)?\}")
_ID: Schema = {"type": "string", "pattern": "^[1-9][0-9]{0,17}$", "examples": ["1"]}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The whole of it, as JSON knows it."""
    routes = list(routes)
    schemas = Schemas()
    schemas.components["Problem"] = PROBLEM
    names = _operation_ids(routes)
    paths: dict[str, Any] = {}
    for route, name in zip(routes, names, strict=True):
        place = paths.setdefault(path_of(route), {})
        place[route.method.lower()] = _operation(route, name, schemas)
    tags = dict.fromkeys(tag_of(route) for route in routes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Postledger",
            "version": version,
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in tags],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.components.items())),
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of `postledger keys create`. `admin` opens everything.",
                }
            },
        },
    }


def path_of(route: Route) -> str:
    """The path without the expressions that aiohttp matches by."""
    return _PARAMETER.sub(r"{\1}", route.path)


def tag_of(route: Route) -> str:
    """What a path is about: the resource under /v1, else the service itself."""
    parts = route.path.strip("/").split("/")
    return parts[1] if parts[0] == "v1" and len(parts) > 1 else "service"


def _operation_ids(routes: Sequence[Route]) -> list[str]:
    """By module and handler; where one handler serves several routes, by method too."""
    plain = [f"{one.handler.__module__.rpartition('.')[2]}_{one.handler.__name__.strip('_')}" for one in routes]
    times = Counter(plain)
    by_method = [
        name if times[name] == 1 else f"{name}_{one.method.lower()}" for name, one in zip(plain, routes, strict=True)
    ]
    times = Counter(by_method)
    return [
        name if times[name] == 1 else f"{name}_{'_'.join(re.findall(r'[a-z0-9]+', path_of(one).lower()))}"
        for name, one in zip(by_method, routes, strict=True)
    ]


def _operation(route: Route, name: str, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": name, "tags": [tag_of(route)], "summary": route.summary}
    if words := first_words(route.handler):
        operation["description"] = words
    if parameters := [*_in_path(route), *_in_query(route, schemas), *_in_headers(route)]:
        operation["parameters"] = parameters
    if body := _body(route, schemas):
        operation["requestBody"] = body
    operation["responses"] = {str(route.status): _answer(route, schemas), **_problems(route)}
    operation["security"] = _security(route)
    return operation


def _security(route: Route) -> list[dict[str, list[str]]]:
    """Any one of these scopes opens it; none: it is open to everybody."""
    if route.scope is None:
        return []
    return [{"key": [scope]} for scope in dict.fromkeys((route.scope, *route.also, "admin"))]


def _in_path(route: Route) -> Iterator[dict[str, Any]]:
    for name in _PARAMETER.findall(route.path):
        is_id = name == "id" or name.endswith("_id")
        schema: Schema = _ID if is_id else {"type": "string", "minLength": 1, "maxLength": 300}
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(route: Route, schemas: Schemas) -> Iterator[dict[str, Any]]:
    if route.query is None:
        return
    attrs.resolve_types(route.query)
    words = field_words(route.query)
    for one in attrs.fields(route.query):
        schema = {**_without_null(schemas.of(one.type, incoming=True)), **one.metadata.get(SCHEMA, {})}
        if isinstance(one.default, str | int | bool):
            schema["default"] = one.default
        yield {
            "name": name_of(one),
            "in": "query",
            "required": one.default is attrs.NOTHING,
            "schema": schema,
            **({"description": words[one.name]} if one.name in words else {}),
        }


def _without_null(schema: Schema) -> Schema:
    if isinstance(kinds := schema.get("type"), list):
        return {**schema, "type": kinds[0]}
    if "anyOf" in schema:
        return next(one for one in schema["anyOf"] if one != {"type": "null"})
    return schema


def _in_headers(route: Route) -> Iterator[dict[str, Any]]:
    if route.idempotent:
        yield {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same request again with the same key has one effect and one answer.",
            "schema": {"type": "string", "pattern": "^[!-~]{1,200}$"},
        }
    if route.if_match is not None:
        yield {
            "name": "If-Match",
            "in": "header",
            "required": route.if_match == "required",
            "description": "The ETag that was read: refused when it has changed since.",
            "schema": {"type": "string", "pattern": '^(\\*|"[0-9]{1,9}")$', "examples": ['"3"']},
        }


def _body(route: Route, schemas: Schemas) -> dict[str, Any] | None:
    others = [one for one in route.consumes if one != "application/json"]
    if route.body is None and not others:
        return None
    content: dict[str, Any] = {one: {"schema": {"type": "string"}} for one in others}
    required = False
    if route.body is not None:
        schema = schemas.of(route.body, incoming=True)
        content = {"application/json": {"schema": schema, "example": example_of(route.body)}, **content}
        required = any(one.default is attrs.NOTHING for one in attrs.fields(route.body))
    elif "application/json" in route.consumes:
        content = {"application/json": {"schema": {}}, **content}
    return {"required": required, "content": content}


def _answer(route: Route, schemas: Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": "Done" if route.status < 400 else "Problem"}
    if route.status == 204 or route.status in range(300, 400) or route.method == "HEAD":
        return answer
    schema: Schema = {"type": "string"} if route.produces != "application/json" else {}
    if route.answer is not None and route.produces == "application/json":
        schema = schemas.of(route.answer, incoming=False)
    answer["content"] = {route.produces: {"schema": schema}}
    if route.if_match is not None:
        answer["headers"] = {"ETag": _header("The version, for If-Match.")}
    return answer


def _problems(route: Route) -> dict[str, Any]:
    names = {
        *_ALWAYS,
        *(_KEYED if route.scope is not None else ()),
        *(("not-found",) if "{" in route.path else ()),
        *(("invalid",) if route.query is not None else ()),
        *(_WITH_BODY if route.body is not None or len(route.consumes) > 1 else ()),
        *(_WITH_KEY if route.idempotent else ()),
        *(("precondition-failed", "invalid") if route.if_match is not None else ()),
        *(("precondition-required",) if route.if_match == "required" else ()),
        *route.problems,
    }
    by_status: dict[int, list[str]] = {}
    for name in KINDS:
        if name in names:
            by_status.setdefault(KINDS[name].status, []).append(name)
    return {str(status): _problem(route, status, found) for status, found in sorted(by_status.items())}


def _problem(route: Route, status: int, names: Sequence[str]) -> dict[str, Any]:
    kind = KINDS[names[0]]
    answer: dict[str, Any] = {
        "description": "; ".join(f"{KINDS[name].title} (`/problems/{name}`)" for name in names),
        "content": {
            "application/problem+json": {
                "schema": {"$ref": "#/components/schemas/Problem"},
                "example": {"type": f"/problems/{names[0]}", "title": kind.title, "status": status, "detail": "..."},
            }
        },
    }
    if tag_of(route) == "service" and route.scope is None:  # what people open in a browser says it in a page
        answer["content"]["text/html"] = {"schema": {"type": "string"}}
    if status in _HEADERS:
        answer["headers"] = {name: _header(words) for name, words in _HEADERS[status].items()}
    return answer


def _header(words: str) -> dict[str, Any]:
    return {"description": words, "schema": {"type": "string"}}
