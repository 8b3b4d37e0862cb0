"""Puts the application together: the route table, the middlewares, one cleanup context per resource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from ..config import Config
from ..database import Database
from ..workers.link import Link
from ..workers.loops import forever
from ..workers.sealer import Sealer
from .api.audit import auditing
from .api.recipients import uploading
from .auth import CALLERS, Callers, require_scope
from .draining import REQUESTS, Requests, close_when_stopping, count_requests
from .feed.context import feeding
from .guards import GUARDS, Guards, limit_callers, limit_strangers
from .keys import CONFIG, DATABASE, LISTEN, POOL, SEALER, STOPPING, SWEEPER, TABLE
from .mailroom import writing
from .metrics import measure, measuring
from .pool import Pool
from .problems import answer_problems
from .public.desk import reading
from .routes import ROUTES, Route
from .security import add_headers
from .sweeping import Sweeper
from .waking import waking
from .webhooks.endpoint import receiving

BODY_LIMIT = 4 << 20
"""Bytes of a body that is read as a whole; streams have limits of their own."""

Context = Callable[[web.Application], AsyncIterator[None]]


async def _pool(app: web.Application) -> AsyncIterator[None]:
    pool = Pool(app[DATABASE])
    await pool.open()
    app[POOL] = pool
    yield
    await pool.close()


async def _sealing(app: web.Application) -> AsyncIterator[None]:
    """What requests append is sealed soon after, and before the process leaves."""
    link = Link(app[DATABASE], "http seals")
    app[SEALER] = sealer = Sealer(link)
    loop = asyncio.ensure_future(forever(sealer.step, "http sealer"))
    yield
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await sealer.finish()
    await link.close()


async def _sweeping(app: web.Application) -> AsyncIterator[None]:
    app[SWEEPER] = Sweeper(app[POOL])
    loop = asyncio.ensure_future(app[SWEEPER].run())
    yield
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)


CONTEXTS: tuple[Context, ...] = (
    *(_pool, _sealing, waking, writing, _sweeping),
    *(reading, measuring, uploading, auditing, feeding, receiving),
)
"""In the order in which they begin; they end the other way round."""


def make_app(config: Config, database: Database, *, listen: Database | None = None) -> web.Application:
    """The application, not yet serving; `listen` is the server's own address where `database` is a pooler."""
    app = web.Application(
        middlewares=[count_requests, measure, answer_problems, limit_strangers, require_scope, limit_callers],
        client_max_size=BODY_LIMIT,
    )
    app[CONFIG] = config
    app[DATABASE] = database
    app[LISTEN] = listen or database
    app[CALLERS] = Callers()
    app[GUARDS] = Guards()
    app[STOPPING] = asyncio.Event()
    app[REQUESTS] = Requests()
    app[TABLE] = _routed(app, ROUTES)
    app.cleanup_ctx.extend(CONTEXTS)
    app.on_shutdown.append(_end_streams)
    app.on_response_prepare.extend((add_headers, close_when_stopping))
    return app


def _routed(app: web.Application, routes: tuple[Route, ...]) -> dict[web.AbstractRoute, Route]:
    return {app.router.add_route(route.method, route.path, route.handler): route for route in routes}


async def _end_streams(app: web.Application) -> None:
    app[STOPPING].set()
