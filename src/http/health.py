"""Whether the process lives, whether the service can do its work, and what does not go on, and why."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import asyncpg
from aiohttp import web
from attrs import define, field, frozen

from ..database import GONE, SCHEMA_VERSION, first_line
from ..database.migrate import installed_version
from ..errors import PostledgerError
from ..ledger.public import Id
from ..projections import vitals
from ..projections.vitals import Vitals
from .feed.context import HUB
from .keys import STOPPING
from .pool import Pool
from .route import Route
from .wire import answer

WITHIN = 2.0
"""Seconds for each query: who asks how we are is told so in time, whatever the database does."""

FRESH = 1.0
"""Seconds for which one look serves all who ask."""

UNSEALED = 10.0
"""Seconds after which events that are in no block are worth a word."""

SNAPSHOT = 900.0
"""The same for a transaction that keeps the server from clearing up."""


@frozen
class Look:
    """What the database told, or why it did not."""

    version: int | None = None
    vitals: Vitals | None = None
    trouble: str | None = None


@define
class Looks:
    """Looks once, however many ask at the same time, and a second for each look."""

    pool: Pool
    _look: Look = field(factory=Look)
    _until: float = 0.0
    _turn: asyncio.Lock = field(factory=asyncio.Lock)

    async def look(self) -> Look:
        """Never raises for a database that is away: that is what it has to tell."""
        async with self._turn:
            if time.monotonic() >= self._until:
                self._look = await self._ask()
                self._until = time.monotonic() + FRESH
            return self._look

    async def _ask(self) -> Look:
        try:
            async with asyncio.timeout(3 * WITHIN), self.pool.connection() as conn:
                version = await installed_version(conn)
                if version != SCHEMA_VERSION:
                    return Look(version, None, None)
                return Look(version, await vitals.read(conn, timeout=WITHIN))
        except (PostledgerError, asyncpg.PostgresError, *GONE) as error:
            return Look(trouble=first_line(error))


LOOKS: web.AppKey[Looks] = web.AppKey("looks", Looks)


@frozen
class Alive:
    """The process answers."""

    status: str


@frozen
class Check:
    """One thing that is as it should be, or not; `required`: without it the service is not ready."""

    name: str
    ok: bool
    required: bool
    detail: str


@frozen
class StuckCampaign:
    """A campaign that does not go on by itself, and the cause."""

    id: Id
    status: str
    cause: str


@frozen
class Readiness:
    """What is not ready, and why; campaigns that are stuck make nobody unready."""

    ready: bool
    checks: list[Check]
    stuck: list[StuckCampaign]


async def healthz(request: web.Request) -> web.StreamResponse:
    """Asks nobody: a database that is away is no reason to end this process."""
    return answer(Alive("ok"))


async def readyz(request: web.Request) -> web.StreamResponse:
    """200 where requests can be served, 503 where not."""
    look = await request.app[LOOKS].look()
    checks = [*_required(look, stopping=request.app[STOPPING].is_set()), *_advised(request.app, look.vitals)]
    ready = all(check.ok for check in checks if check.required)
    found = vitals.stuck(look.vitals) if look.vitals is not None else []
    stuck = [StuckCampaign(Id(one.id), one.status, one.cause) for one in found]
    return answer(Readiness(ready, checks, stuck), 200 if ready else 503)


def _required(look: Look, *, stopping: bool) -> Sequence[Check]:
    checks = [Check("process", not stopping, True, "ending: open requests finish" if stopping else "running")]
    if look.trouble is not None:
        # The words of a driver may name hosts and users, which are nobody's business out here; the log has them.
        return [*checks, Check("database", False, True, "cannot be asked")]
    checks.append(Check("database", True, True, "answers"))
    fits = look.version == SCHEMA_VERSION
    there = "none" if look.version is None else str(look.version)
    detail = there if fits else f"{there}, this program needs {SCHEMA_VERSION}: run 'postledger migrate' or upgrade"
    return [*checks, Check("schema", fits, True, detail)]


def _advised(app: web.Application, signs: Vitals | None) -> Sequence[Check]:
    if signs is None:
        return ()
    hub = app[HUB]
    workers = f"{signs.workers} running" + (f", {signs.missing} gone without a word" if signs.missing else "")
    heard = f"{signs.deaf} of {signs.workers} workers hear no notifications and sweep every 2 s"
    listening = signs.deaf == 0
    sealed = signs.unsealed_for <= UNSEALED
    held = signs.snapshot_for <= SNAPSHOT
    return [
        Check("workers", signs.workers > 0, False, workers if signs.workers else "none: start 'postledger work'"),
        Check("listener", listening, False, "workers hear notifications" if listening else heard),
        Check("feed", hub.hears or hub.wanted.streams == 0, False, _feed_words(hub.wanted.streams, hears=hub.hears)),
        Check("sealer", sealed, False, f"{signs.unsealed} events in no block, for {signs.unsealed_for:.1f} s"),
        Check("snapshot", held, False, f"the oldest transaction is open for {signs.snapshot_for:.0f} s"),
    ]


def _feed_words(streams: int, *, hears: bool) -> str:
    if not streams:
        return "no streams"
    return (
        f"{streams} streams" if hears else f"{streams} streams, and no notifications: they look for news by the clock"
    )


ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", healthz, None, "Whether the process lives", answer=Alive),
    Route("GET", "/readyz", readyz, None, "What is not ready, and which campaigns are stuck", answer=Readiness),
)
