"""Pictures that tell of an open, and links that tell of a click and lead on."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from aiohttp import web

from ...ledger.readers import Engagement
from ...messages.tracking import link_digest, read_click, read_open
from ..route import Route
from .desk import DESK
from .unsubscribe import with_pages
from .visitors import automatic

PIXEL = base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7")
"""A transparent GIF of one pixel."""

# Every look is to be seen, so nothing between here and the reader may keep an answer.
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store, no-cache, must-revalidate, private, max-age=0",
    "Pragma": "no-cache",
    "Expires": "0",
    "X-Robots-Tag": "noindex",
}


@with_pages
async def open_(request: web.Request) -> web.StreamResponse:
    """A picture, whatever becomes of the note; HEAD is nobody's look."""
    desk = request.app[DESK]
    campaign_id, delivery_id = read_open(await desk.secret(), request.match_info["token"])
    if request.method == "GET":
        desk.recorder.note(Engagement(campaign_id, delivery_id, "Opened", automatic=automatic(request.headers)))
    return web.Response(
        body=PIXEL,
        content_type="image/gif",
        headers={**_HEADERS, "Cross-Origin-Resource-Policy": "cross-origin"},
    )


@with_pages
async def follow(request: web.Request) -> web.StreamResponse:
    """To the link's target, to the byte: only where we signed it, so this leads nowhere that no mail of ours led."""
    desk = request.app[DESK]
    token, encoded = request.match_info["token"], request.match_info["target"]
    campaign_id, delivery_id, target = read_click(await desk.secret(), token, encoded)
    if request.method == "GET":
        seen = Engagement(campaign_id, delivery_id, "Clicked", link_digest(target), automatic(request.headers))
        desk.recorder.note(seen)
    # The framework's own redirects would write the address anew.
    return web.Response(status=302, headers={**_HEADERS, "Location": target})


ROUTES: tuple[Route, ...] = (
    Route("GET", "/o/{token}", open_, None, "A picture that notes an open", produces="image/gif"),
    Route("HEAD", "/o/{token}", open_, None, "The same, noting nothing", produces="image/gif"),
    Route("GET", "/c/{token}/{target}", follow, None, "A link that notes a click and leads on", status=302),
    Route("HEAD", "/c/{token}/{target}", follow, None, "The same, noting nothing", status=302),
)
