"""Logs: for people, on stderr, above the progress bar where there is one."""

from __future__ import annotations

import logging
import sys
import time

import structlog
from rich.text import Text
from structlog.typing import EventDict, Processor, WrappedLogger

from .output import stderr

AGAIN_AFTER = 10.0
"""Seconds in which the same trouble is not told twice."""


def configure(level: str, *, verbose: bool) -> None:
    """`verbose` shows everything, tracebacks too; otherwise an unexpected error is one line."""
    calm: list[Processor] = [] if verbose else [_shorten, _Calm()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *calm,
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(colors=stderr.is_terminal, exception_formatter=structlog.dev.plain_traceback),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.DEBUG if verbose else logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: _Lines(),
        cache_logger_on_first_use=False,
    )


class _Lines:
    """Prints through the console, which knows where the progress bar is."""

    def msg(self, message: str) -> None:
        """One record, coloured already."""
        stderr.print(Text.from_ansi(message))

    debug = info = warning = error = critical = exception = msg


class _Calm:
    """The same trouble once in a while: whoever waits for a server to come back knows by now."""

    def __init__(self) -> None:
        self._said: dict[tuple[object, ...], float] = {}

    def __call__(self, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        if "reason" in event:
            what, now = (event["event"], event["reason"], event.get("campaign")), time.monotonic()
            if now - self._said.get(what, -AGAIN_AFTER) < AGAIN_AFTER:
                raise structlog.DropEvent
            self._said[what] = now
        return event


def _shorten(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """The traceback of an unexpected error as its last line."""
    if found := event.pop("exc_info", None):
        error = found if isinstance(found, BaseException) else sys.exc_info()[1]
        event["error"] = f"{type(error).__name__}: {error}"
    return event
