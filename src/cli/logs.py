"""Logs: for people, on stderr, above the progress bar where there is one."""

from __future__ import annotations

import logging
import sys

import structlog
from rich.text import Text
from structlog.typing import EventDict, WrappedLogger

from .output import stderr


def configure(level: str, *, verbose: bool) -> None:
    """`verbose` shows everything, tracebacks too; otherwise an unexpected error is one line."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if verbose else [_shorten]),
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


def _shorten(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """The traceback of an unexpected error as its last line."""
    if found := event.pop("exc_info", None):
        error = found if isinstance(found, BaseException) else sys.exc_info()[1]
        event["error"] = f"{type(error).__name__}: {error}"
    return event
