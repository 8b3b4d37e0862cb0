"""What the public pages share: the secret of the tokens, the recorder, and how often strangers may try."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web
from attrs import define, field

from ...ledger import campaigns
from ...workers.link import Link
from ...workers.loops import forever
from ..keys import DATABASE, POOL, SEALER
from ..limits import Buckets, caller_address
from ..pool import Pool
from .recorder import Recorder


def _guesses() -> Buckets:
    return Buckets(rate=0.5, burst=30)


def _looks() -> Buckets:
    return Buckets(rate=5, burst=100)


@define
class Desk:
    """`guesses`: wrong tokens from one address; `looks`: pages shown to one address.

    Who shows a right token is never kept from leaving, nor from a link's target: mailbox providers unsubscribe all of
    their people from a few addresses.
    """

    pool: Pool
    recorder: Recorder
    guesses: Buckets = field(factory=_guesses)
    looks: Buckets = field(factory=_looks)
    _secret: bytes | None = None

    async def secret(self) -> bytes:
        """The key of the tokens, asked for once. Raises UnavailableError."""
        if self._secret is None:
            async with self.pool.connection() as conn:
                self._secret = await campaigns.secret(conn, "unsubscribe")
        return self._secret


DESK: web.AppKey[Desk] = web.AppKey("desk", Desk)


class TooOften(Exception):  # noqa: N818 - an answer, not a fault
    """The address has tried too often; `seconds` until it may again."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


def count(buckets: Buckets, request: web.Request) -> None:
    """One more of this address. Raises TooOften."""
    if seconds := buckets.take(caller_address(request)):
        raise TooOften(seconds)


async def reading(app: web.Application) -> AsyncIterator[None]:
    """The desk is open as long as the application runs; what was noted is written down before it leaves."""
    link = Link(app[DATABASE], "http readers")
    recorder = Recorder(link, on_noted=app[SEALER].note)
    app[DESK] = Desk(app[POOL], recorder)
    loop = asyncio.ensure_future(forever(recorder.step, "http readers"))
    yield
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await recorder.finish()
    await link.close()
