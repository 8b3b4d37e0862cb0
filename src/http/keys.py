"""What the application holds for its handlers, by typed keys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from aiohttp import web

from ..config import Config
from ..database import Database
from ..ledger.access import Caller
from ..workers.sealer import Sealer
from .pool import Pool
from .route import Route
from .sweeping import Sweeper

CONFIG: web.AppKey[Config] = web.AppKey("config", Config)
DATABASE: web.AppKey[Database] = web.AppKey("database", Database)
LISTEN: web.AppKey[Database] = web.AppKey("listen", Database)
"""The server's own address, for LISTEN and what else needs a session; `database` may be a pooler."""
POOL: web.AppKey[Pool] = web.AppKey("pool", Pool)
SEALER: web.AppKey[Sealer] = web.AppKey("sealer", Sealer)
"""Told by `note()` after every commit that appended something."""
SWEEPER: web.AppKey[Sweeper] = web.AppKey("sweeper", Sweeper)
STOPPING: web.AppKey[asyncio.Event] = web.AppKey("stopping", asyncio.Event)
"""Set when the service is asked to end: streams end then, by themselves."""
TABLE: web.AppKey[Mapping[web.AbstractRoute, Route]] = web.AppKey("table", Mapping[web.AbstractRoute, Route])
CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
"""Whose request it is, where a key had to be shown."""
