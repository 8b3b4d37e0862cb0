"""One plain connection of a worker's own, made anew whenever it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from ..database import GONE, Connection, Database, close, first_line
from ..errors import UnavailableError

log = structlog.get_logger(__name__)

ANSWER_WITHIN = 60.0
"""Seconds for a call that names no time of its own: none may wait for ever on a connection that is half gone."""


class LinkLost(Exception):  # noqa: N818 - an event in the life of a connection, not a fault
    """The connection went, or the server did not answer in time; whether the call took effect is not known."""


class Link:
    """A connection for one kind of call, one call at a time. It has no pool's reset to pay, and nobody to wait for."""

    def __init__(self, database: Database, label: str, *, on_used: Callable[[], None] = lambda: None) -> None:
        self.database = database
        self.label = label
        self.on_used = on_used
        """Told after each call, whether it went well or not: it may have taken effect in any case."""
        self._conn: Connection | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Connection]:
        """The connection, for one call. Raises LinkLost when there is none to be had or it broke."""
        async with self._turn:
            try:
                if self._conn is None or self._conn.is_closed():
                    self._conn = await self.database.connect(label=self.label, command_timeout=ANSWER_WITHIN)
                yield self._conn
            except (*GONE, UnavailableError) as error:
                self.drop()
                raise LinkLost(first_line(error)) from error
            except asyncio.CancelledError:
                self.drop()  # the call may still be under way on the wire
                raise
            finally:
                self.on_used()

    def drop(self) -> None:
        """Lets the connection go at once."""
        if self._conn is not None:
            self._conn.terminate()
            self._conn = None

    async def close(self) -> None:
        """Closes it politely."""
        await close(self._conn)
        self._conn = None


class Backoff:
    """Waits between repeats of a call that cannot reach the server: 50 ms at first, at most 2 s."""

    def __init__(self) -> None:
        self._next_in = 0.05

    async def wait(self) -> None:
        """Sleeps, longer each time."""
        await asyncio.sleep(self._next_in)
        self._next_in = min(self._next_in * 2, 2.0)

    def reset(self) -> None:
        """The call went through."""
        self._next_in = 0.05
