"""What the API is, for programs and for people: /openapi.json and /docs."""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import version
from typing import Any

import orjson
from aiohttp import web

from ..keys import TABLE
from ..openapi.document import document
from ..openapi.page import page
from ..route import Route

CACHED = "public, max-age=300"


@lru_cache(maxsize=4)
def _document(routes: tuple[Route, ...]) -> dict[str, Any]:
    return document(routes, version("postledger"))


@lru_cache(maxsize=4)
def _json(routes: tuple[Route, ...]) -> bytes:
    return orjson.dumps(_document(routes))


@lru_cache(maxsize=4)
def _html(routes: tuple[Route, ...]) -> tuple[bytes, str]:
    return page(_document(routes))


async def openapi(request: web.Request) -> web.Response:
    """Made of the route table and of the classes that requests are read into."""
    return web.Response(
        body=_json(tuple(request.app[TABLE].values())),
        content_type="application/json",
        headers={"Cache-Control": CACHED, "Access-Control-Allow-Origin": "*"},
    )


async def docs(request: web.Request) -> web.Response:
    """The same to read: no script, nothing from elsewhere."""
    body, policy = _html(tuple(request.app[TABLE].values()))
    return web.Response(
        body=body,
        content_type="text/html",
        charset="utf-8",
        headers={"Cache-Control": CACHED, "Content-Security-Policy": policy},
    )


ROUTES = (
    Route("GET", "/openapi.json", openapi, None, "This description, for programs"),
    Route("GET", "/docs", docs, None, "This description, to read", produces="text/html"),
)
