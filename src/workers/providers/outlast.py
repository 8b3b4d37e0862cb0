"""Waiting for an answer that must be known even when the one who asked is cancelled."""

import asyncio
from contextlib import suppress
from typing import Any

GRACE = 5.0
"""Seconds that an answer is still waited for after a cancellation."""


async def outlast(answer: asyncio.Future[Any], within: float | None = None, grace: float = GRACE) -> bool:
    """Whether `answer` is done after at most `within` seconds. Does not cancel it, raises nothing of it.

    A cancellation does not end the wait: it shortens it to `grace` seconds, a second one to nothing. It is
    not raised, for the answer is worth more to the caller, who finds the request in `Task.cancelling()`.
    """
    try:
        await asyncio.wait({answer}, timeout=within)
    except asyncio.CancelledError:
        with suppress(asyncio.CancelledError):
            await asyncio.wait({answer}, timeout=grace)
    return answer.done()
