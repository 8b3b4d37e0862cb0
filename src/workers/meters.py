"""What one process measures of itself, for Prometheus: of workers, and of whatever else runs in it."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ..ledger.queue import Outcome

REGISTRY = CollectorRegistry()
"""One for the process: two workers in one are added up."""

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SLOW = (0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300)


def _histogram(name: str, help_: str, labels: Iterable[str] = (), buckets: tuple[float, ...] = _FAST) -> Histogram:
    return Histogram(f"postledger_{name}_seconds", help_, labels, registry=REGISTRY, buckets=buckets)


CLAIM = _histogram("claim", "Claim calls, from asking to the answer.")
CLAIMED = Counter("postledger_claimed", "Deliveries that were claimed.", registry=REGISTRY)
WAKE = _histogram("wake", "From a notification to the answer of the first claim that it led to.")
SEND = _histogram("send", "Provider calls.", ["provider"])
SETTLE = _histogram("settle", "Settle calls, from asking to the commit.")
OUTCOMES = Counter(
    "postledger_outcomes",
    "Outcomes that were committed, by provider, event and class (of the reply, or the reason).",
    ["provider", "event", "class"],
    registry=REGISTRY,
)
SEAL = _histogram("seal", "Seal calls.")
RECOVERY = _histogram(
    "recovery",
    "From the first sign that a worker is dead (its lock free, or its lease over) until its rows are free again.",
    buckets=_SLOW,
)
_WORKERS = Gauge("postledger_process_workers", "Workers in this process.", registry=REGISTRY)
_LISTENING = Gauge("postledger_process_listening", "Those of them that hear notifications.", registry=REGISTRY)
_HELD = Gauge("postledger_process_held", "Deliveries that they have in hand.", registry=REGISTRY)


class Watched(Protocol):
    """A worker, as far as it is measured when somebody asks."""

    @property
    def listening(self) -> bool: ...

    @property
    def held(self) -> int: ...


_watched: list[Watched] = []
_WORKERS.set_function(lambda: len(_watched))
_LISTENING.set_function(lambda: sum(worker.listening for worker in _watched))
_HELD.set_function(lambda: sum(worker.held for worker in _watched))


@contextmanager
def watching(worker: Watched) -> Iterator[None]:
    """It works inside the block."""
    _watched.append(worker)
    try:
        yield
    finally:
        _watched.remove(worker)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observes how long the block took, whether it went well or not."""
    began = perf_counter()
    try:
        yield
    finally:
        histogram.observe(perf_counter() - began)


def settled(provider: str, outcomes: Sequence[Outcome]) -> None:
    """Outcomes that were committed."""
    alike = {(outcome.type, id(outcome.body)): outcome for outcome in outcomes}  # a batch's mostly share one body
    for key, count in Counts((outcome.type, id(outcome.body)) for outcome in outcomes).items():
        OUTCOMES.labels(provider, *_kind(alike[key])).inc(count)


def _kind(outcome: Outcome) -> tuple[str, str]:
    body = outcome.body
    return outcome.type, str(body.get("class") or body.get("reason") or "success")
