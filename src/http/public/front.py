"""The front door: a page that says what this is, and where to read on."""

from __future__ import annotations

from aiohttp import web

from ..route import Route
from . import pages

_BODY = (
    "<p>This is Postledger, which sends mail campaigns. There is nothing to see here for readers of its mails: "
    "the links in them lead to pages of their own.</p>"
    '<ul><li><a href="docs">The API, to read</a></li><li><a href="openapi.json">The same for programs</a></li>'
    '<li><a href="readyz">How the service is doing</a></li></ul>'
)


async def front(request: web.Request) -> web.StreamResponse:
    """Names the documents; tells nothing of what is in the database."""
    return pages.plain("Postledger", _BODY)


ROUTES: tuple[Route, ...] = (Route("GET", "/", front, None, "A page that names the documents", produces="text/html"),)
