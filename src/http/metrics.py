"""/metrics: what this process measures of itself, and how the whole installation does by its database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..errors import ConfigurationError
from ..projections.vitals import Vitals, counts
from ..workers.meters import REGISTRY
from .feed.context import HUB
from .health import LOOKS, Look, Looks
from .keys import POOL
from .public.desk import DESK
from .route import Handler, Route

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

ProcessCollector(registry=REGISTRY)

REQUESTS = Histogram(
    "postledger_http_request_seconds",
    "Requests, from their head to the end of the answer; streams last as long as they do.",
    ["method", "route", "status"],
    registry=REGISTRY,
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
)
_STREAMS = Gauge("postledger_feed_streams", "Open live streams.", registry=REGISTRY)
_HEARS = Gauge("postledger_feed_listening", "Whether the live feed hears of new blocks.", registry=REGISTRY)
_WAITING = Gauge("postledger_engagement_waiting", "Opens and clicks not written down yet.", registry=REGISTRY)
_DROPPED = Gauge("postledger_engagement_dropped", "Opens and clicks that found no room.", registry=REGISTRY)


@web.middleware
async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Times every request, by the pattern of its path: a path itself may hold a token."""
    began = time.perf_counter()
    status = "499"  # the caller went away
    try:
        response = await handler(request)
        status = str(response.status)
        return response
    finally:
        resource = request.match_info.route.resource
        route = "(none)" if resource is None else resource.canonical
        method = request.method if resource is not None else "(any)"
        REQUESTS.labels(method, route, status).observe(time.perf_counter() - began)


async def metrics(request: web.Request) -> web.StreamResponse:
    """All of it; while the database is away, what this process knows."""
    app = request.app
    _STREAMS.set(app[HUB].wanted.streams)
    _HEARS.set(app[HUB].hears)
    _WAITING.set(app[DESK].recorder.waiting)
    _DROPPED.set(app[DESK].recorder.dropped)
    text = generate_latest(REGISTRY) + installation(await app[LOOKS].look())
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def installation(look: Look) -> bytes:
    """What one look at the database came to, as Prometheus reads it."""
    registry = CollectorRegistry()
    registry.register(_Installation(look))
    return generate_latest(registry)


class _Installation(Collector):
    def __init__(self, look: Look) -> None:
        self._look = look

    def collect(self) -> Iterable[Metric]:
        yield _one("database_up", "Whether the database could be asked.", self._look.trouble is None)
        yield _one("schema_version", "Of the database; 0: none.", self._look.version or 0)
        if self._look.vitals is not None:
            yield from _gauges(self._look.vitals)
            yield from _queues(self._look.vitals)


def _gauges(signs: Vitals) -> Iterator[Metric]:
    yield _one("block", "The newest sealed block.", signs.block_no)
    yield _one("unsealed_events", "Committed and in no block; counted up to 10,000.", signs.unsealed)
    yield _one("seal_lag_seconds", "Age of the oldest event that is in no block.", signs.unsealed_for)
    yield _one("notification_queue", "How full the server's notification queue is, 0 to 1.", signs.notifications)
    yield _one("workers", "Workers that are running, in all processes.", signs.workers)
    yield _one("workers_deaf", "Those of them that hear no notifications.", signs.deaf)
    yield _one("workers_missing", "Workers that are neither running nor ended.", signs.missing)
    yield _one("claims", "Claims that are not settled to their end.", signs.claims)
    yield _one("in_flight", "Deliveries in them.", signs.in_flight)
    yield _one("oldest_claim_seconds", "Age of the oldest claim.", signs.claimed_for)
    yield _one("oldest_snapshot_seconds", "The oldest transaction that holds a snapshot.", signs.snapshot_for)
    yield _one("oldest_snapshot_transactions", "The same in transactions, slots too.", signs.snapshot_age)
    yield _one("hidden_sessions", "Sessions that could not be looked at for it.", signs.hidden)
    behind = GaugeMetricFamily("postledger_follower_blocks", "Blocks a follower is behind.", labels=["follower"])
    for name, blocks in signs.behind.items():
        behind.add_metric([name], blocks)
    yield behind


def _queues(signs: Vitals) -> Iterator[Metric]:
    """By campaign: those that may have work, 200 at most, so that there is an end of labels."""
    depth = GaugeMetricFamily(
        "postledger_deliveries",
        "Deliveries of campaigns under way, by status.",
        labels=["campaign", "status"],
    )
    age = GaugeMetricFamily("postledger_queue_age_seconds", "For how long the first row is due.", labels=["campaign"])
    running = GaugeMetricFamily("postledger_campaigns", "Campaigns that have not ended, by status.", labels=["status"])
    by_status: dict[str, int] = {"sending": 0, "paused": 0, "scheduled": 0}
    for queue in signs.queues:
        by_status[queue.status] += 1
        for status, count in counts(queue).items():
            depth.add_metric([str(queue.id), status], count)
        if queue.due_for is not None:
            age.add_metric([str(queue.id)], max(queue.due_for, 0.0))
    for status, count in by_status.items():
        running.add_metric([status], count)
    yield from (depth, age, running)


def _one(name: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(f"postledger_{name}", help_, value=float(value))


async def measuring(app: web.Application) -> AsyncIterator[None]:
    """The looks of /readyz and /metrics."""
    app[LOOKS] = Looks(app[POOL])
    yield


@asynccontextmanager
async def serving_metrics(address: tuple[str, int]) -> AsyncIterator[str]:
    """A process without the service, such as `work`, shows what it measures of itself; yields the base URL."""

    async def own(_: web.Request) -> web.StreamResponse:
        return web.Response(body=generate_latest(REGISTRY), headers={"Content-Type": CONTENT_TYPE})

    async def alive(_: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/metrics", own)
    app.router.add_get("/healthz", alive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, *address)
        try:
            await site.start()
        except OSError as error:
            raise ConfigurationError(
                f"--metrics {address[0]}:{address[1]} cannot be listened on ({error.strerror or error}): end what uses "
                "it, or name another address"
            ) from error
        host, port = runner.addresses[0][:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}"
    finally:
        await runner.cleanup()


ROUTES: tuple[Route, ...] = (Route("GET", "/metrics", metrics, None, "What Prometheus reads", produces="text/plain"),)
