"""Headers that every answer carries, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from .keys import CONFIG

# What an answer says for itself stands: a page allows its own style sheet, a picture in a mail may be shown elsewhere.
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}

_HTTPS_ONLY = "max-age=31536000"


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """For `on_response_prepare`: errors, streams and redirects pass here too."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers["Server"] = "postledger"  # no versions
    url = request.app[CONFIG].url
    if url is not None and url.startswith("https://"):
        response.headers.setdefault("Strict-Transport-Security", _HTTPS_ONLY)
