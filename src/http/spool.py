"""A body of any size on its way in: written to a file first, so that no slow sender holds a connection or a lock."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

from aiohttp import web
from attrs import frozen

from .problems import Problem

MOST = 1 << 30
"""Bytes of one body."""

PIECE = 1 << 20

SILENT = 30.0
"""Seconds in which the next bytes must come."""


@frozen
class Spooled:
    """A body that came whole: a file that stands at its beginning, and the digest of all of it."""

    file: BinaryIO
    size: int
    digest: bytes


@asynccontextmanager
async def spooled(request: web.Request, *, most: int = MOST, silent: float = SILENT) -> AsyncIterator[Spooled]:
    """The request's body, for the time of the block. Raises Problem where it does not come, or not whole."""
    with tempfile.TemporaryFile() as file:
        digest = hashlib.sha256()

        def keep(piece: bytes) -> None:
            digest.update(piece)
            file.write(piece)

        size = 0
        try:
            async for piece in _pieces(request, silent):
                size += len(piece)
                if size > most:
                    raise Problem(
                        "too-large", f"more than {most:,} bytes", remedy=f"send it in parts of at most {most:,} bytes"
                    )
                await asyncio.to_thread(keep, piece)
            await asyncio.to_thread(file.seek, 0)
        except OSError as error:
            raise Problem("unavailable", "there is no room for it here just now", remedy="try again") from error
        yield Spooled(file, size, digest.digest())


async def _pieces(request: web.Request, silent: float) -> AsyncIterator[bytes]:
    buffer = bytearray()
    content = request.content
    while True:
        try:
            async with asyncio.timeout(silent):
                some = await content.readany()
        except TimeoutError:
            raise Problem("request-timeout", f"nothing came for {silent:.0f} s", remedy="send it again") from None
        except web.RequestPayloadError as error:
            raise Problem("malformed", "the body broke off", remedy="send it again, whole") from error
        if not some and content.at_eof():
            break
        buffer += some
        if len(buffer) >= PIECE:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)
