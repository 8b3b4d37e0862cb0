"""Answers that are written piece by piece: begun when the first piece is there, cut off where they cannot go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import structlog
from aiohttp import web

from ..errors import PostledgerError

log = structlog.get_logger(__name__)

NDJSON = "application/x-ndjson"

STALLED = 30.0
"""Seconds in which a client must take a piece: what it has not taken is kept here, and so is what it holds up."""


async def stream_out(
    request: web.Request,
    pieces: AsyncGenerator[bytes, None],
    content_type: str,
    *,
    headers: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    """Writes `pieces`; an error before the first one is still a problem, one behind it ends the connection.

    A chunked answer without its end is what tells a client that it has not got all.
    """
    async with aclosing(pieces):
        first = await anext(pieces, b"")
        response = web.StreamResponse(headers={"Cache-Control": "no-store", **(headers or {})})
        response.content_type = content_type
        await response.prepare(request)
        try:
            await _write(response, first)
            async for piece in pieces:
                await _write(response, piece)
            await response.write_eof()
        except ConnectionResetError:
            pass  # the client has gone
        except (PostledgerError, TimeoutError) as error:
            log.warning("stream_broken_off", path=_pattern(request), reason=str(error) or "the client takes nothing")
            _abort(request)
        except BaseException:
            _abort(request)
            raise
    return response


async def _write(response: web.StreamResponse, piece: bytes) -> None:
    if piece:
        async with asyncio.timeout(STALLED):
            await response.write(piece)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _pattern(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical
