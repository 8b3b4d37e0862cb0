"""Waiting for something to become true."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

PAUSE = 0.02


async def eventually(assertion: Callable[[], Any], within: float = 5.0) -> Any:
    """Repeat `assertion` (sync or async) until it raises no AssertionError; returns what it returned.

    After `within` seconds the last AssertionError passes.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            answer = assertion()
            return await answer if inspect.isawaitable(answer) else answer
        except AssertionError:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(PAUSE)
