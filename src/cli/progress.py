"""What a person sees while a campaign is read in and sent: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..ledger.queue import Outcome
from ..workers.loops import monotonic
from .output import note, number, stderr

TERMINAL = ("sent", "failed", "skipped", "cancelled", "unknown")
_BY_EVENT = {"Sent": "sent", "Failed": "failed", "Skipped": "skipped"}

REFRESH_EVERY = 0.25
LINE_EVERY = 5.0
AT_LEAST = 2.0
"""Seconds that it will take, below which no time is told."""

SPAN = 10.0
"""Seconds that the shown rate is taken over."""


class Meter:
    """How far a campaign is: the last true counts, and our own outcomes since."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.counts: Counter[str] = Counter()
        self.audience = 0
        self._marks: list[tuple[float, int]] = []

    @property
    def done(self) -> int:
        return min(sum(self.counts[status] for status in TERMINAL), self.audience)

    def counted(self, counts: Mapping[str, int]) -> None:
        """True counts of the whole campaign."""
        self.audience = counts["audience"]
        self.counts = Counter({status: counts[status] for status in TERMINAL})

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        """Outcomes of ours that were committed. What is tried again is not done."""
        for outcome in outcomes:
            if status := _BY_EVENT.get(outcome.type):
                self.counts[status] += 1

    def mark(self) -> None:
        """Remembers where it stands now, for the rate."""
        now = self.clock()
        self._marks = [mark for mark in self._marks if mark[0] >= now - SPAN]
        self._marks.append((now, self.done))

    @property
    def rate(self) -> float:
        """Recipients per second, over the last SPAN seconds."""
        if len(self._marks) < 2:
            return 0.0
        (since, before), (now, done) = self._marks[0], self._marks[-1]
        return (done - before) / (now - since) if now > since else 0.0

    def words(self) -> str:
        """What became of those who are done."""
        return ", ".join(f"{number(self.counts[s])} {s}" for s in TERMINAL if self.counts[s]) or "nothing sent yet"

    def pace(self) -> str:
        """Rate and time to finish; of the last ones only how many: they may wait for their next try."""
        rate = self.rate
        if rate <= 0:
            return "waiting"
        left = self.audience - self.done
        if left <= rate * AT_LEAST:
            return f"{rate:,.0f}/s, {number(left)} left"
        return f"{rate:,.0f}/s, {timedelta(seconds=round(left / rate))} left"


class Display:
    """Shows a meter. `quiet` shows nothing."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self.meter = Meter()
        self._said = ""

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        """Called by the worker."""
        self.meter.settled(outcomes)

    def counted(self, counts: Mapping[str, int]) -> None:
        """Called with the truth."""
        self.meter.counted(counts)

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Shown while inside."""
        if self.quiet:
            yield
            return
        showing = asyncio.ensure_future(self._bar() if stderr.is_terminal else self._lines())
        try:
            yield
        finally:
            showing.cancel()
            with suppress(asyncio.CancelledError):
                await showing

    async def _lines(self) -> None:
        while True:
            self.meter.mark()
            await asyncio.sleep(LINE_EVERY)
            self.meter.mark()
            meter = self.meter
            line = f"{number(meter.done)} of {number(meter.audience)} done: {meter.words()}"
            if line != self._said:  # a campaign that waits for an hour says so once
                self._said = line
                note(f"{line}; {meter.pace()}")

    async def _bar(self) -> None:
        columns = (
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%  {task.fields[words]}  [dim]{task.fields[pace]}"),
        )
        with Progress(*columns, console=stderr, auto_refresh=False, transient=True) as progress:
            task = progress.add_task("", total=None, words="", pace="")
            while True:
                self._refresh(progress, task)
                await asyncio.sleep(REFRESH_EVERY)

    def _refresh(self, progress: Progress, task: TaskID) -> None:
        meter = self.meter
        meter.mark()
        progress.update(
            task, total=meter.audience or None, completed=meter.done, words=meter.words(), pace=meter.pace()
        )
        progress.refresh()


@asynccontextmanager
async def reading(name: str, *, quiet: bool) -> AsyncIterator[Callable[[int], None]]:
    """A function to be told how many rows are written down; shown on a terminal alone."""
    if quiet or not stderr.is_terminal:
        yield lambda _: None
        return
    with stderr.status(f"reading {name}") as status:
        yield lambda rows: status.update(f"reading {name}: {number(rows)} rows")


@asynccontextmanager
async def writing_down(rows: int, *, quiet: bool) -> AsyncIterator[None]:
    """While one transaction makes recipients of them: seconds for a million."""
    if quiet or not stderr.is_terminal:
        yield
        return
    with stderr.status(f"writing {number(rows)} rows down"):
        yield
