"""How every loop of a worker runs: one step after the other, and an error in one step ends no process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)

PAUSE = 1.0
"""Seconds that a loop rests after a fault."""


async def forever(step: Callable[[], Awaitable[None]], name: str) -> None:
    """Repeats `step`. What it raises is a fault of ours: it is logged with its traceback, and the loop goes on."""
    while True:
        try:
            await step()
        except Exception:
            log.exception("loop_failed", loop=name)
            await asyncio.sleep(PAUSE)


async def first_of(*events: asyncio.Event, within: float) -> None:
    """Returns when one of the events is set, or after `within` seconds."""
    if any(event.is_set() for event in events):
        return
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=max(within, 0), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def monotonic() -> float:
    """This process's clock, seconds; deadlines of its own only. What is due is the database's to say."""
    return time.monotonic()


async def within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Waits until the condition holds; False when it does not within so many seconds. For the way out alone."""
    until = monotonic() + seconds
    while not condition():
        if monotonic() >= until:
            return False
        await asyncio.sleep(0.02)
    return True


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` to its end, whatever cancels the caller meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    task.result()
