"""Runs a command's coroutine: the event loop, signals, and what becomes of errors."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from ..errors import PostledgerError
from . import logs
from .exits import Exit, code_of
from .options import Given
from .output import ReaderGone, complain, note, stderr

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Main: TypeAlias = Callable[["Interrupts"], Coroutine[Any, Any, int]]


class Interrupts:
    """The first signal asks the command to end, the second leaves at once.

    By default the first cancels the command where it stands, which undoes the transaction it is in. A command that has
    more to give back says `gently()`, and ends when `asked` is set.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.advice = "stopped before the end; nothing was written"
        self._command = asyncio.current_task()
        self._gentle = False
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                loop.add_signal_handler(number, self.interrupt)

    @contextmanager
    def gently(self) -> Iterator[None]:
        """Inside, the first signal cancels nothing."""
        self._gentle = True
        try:
            yield
        finally:
            self._gentle = False

    def interrupt(self) -> None:
        """A signal has come."""
        if self.asked.is_set():
            stderr.show_cursor(True)
            complain("left at once; what was under way ends as an unknown outcome")
            os._exit(Exit.STOPPED)
        self.asked.set()
        if not self._gentle and self._command is not None:
            self._command.cancel()


def run(given: Given, main: Main, *, level: str = "warning") -> int:
    """The exit code. Errors that a user can do something about are one line; so is a fault of ours, unless verbose."""
    logs.configure(level, verbose=given.verbose)
    return guarded(lambda: _in_loop(main), verbose=given.verbose)


def _in_loop(main: Main) -> int:
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(_interruptible(main))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:  # where there is none, Windows
        return asyncio.new_event_loop
    return new_event_loop


async def _interruptible(main: Main) -> int:
    interrupts = Interrupts()
    try:
        return await main(interrupts)
    except asyncio.CancelledError:
        if not interrupts.asked.is_set():
            raise
        note(interrupts.advice)
        return Exit.STOPPED


def guarded(work: Callable[[], int], *, verbose: bool) -> int:
    """Errors as one line and an exit code."""
    try:
        return work()
    except PostledgerError as error:
        complain(str(error))
        if verbose:
            traceback.print_exc()
        return code_of(error)
    except ReaderGone:
        # Python must not try to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        note("stopped")
        return Exit.STOPPED
    except Exception as error:  # noqa: BLE001 - the last place that can say anything
        complain(f"a fault in Postledger: {type(error).__name__}: {error} (--verbose shows where; please report it)")
        if verbose:
            traceback.print_exc()
        return Exit.SOFTWARE
