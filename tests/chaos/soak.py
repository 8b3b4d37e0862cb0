"""The large demonstration: a campaign over SMTP by three workers, one killed, one stopped, PostgreSQL restarted.

`python -m tests.chaos.soak` from the repository; --help has the sizes. Not collected by pytest. Exit code 0: nobody was
lost, and every copy beyond the first follows an unknown outcome that is recorded.
"""

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import structlog
from attrs import define, field

from tests.chaos.processes import Crew, crew
from tests.chaos.run import Ending, Run
from tests.servers import PrivateServer, migrate_template, watched

HOURS = 4 * 3600.0


@define
class Story:
    """What was done when, and how long it took to get over it."""

    begun_at: float = field(factory=time.monotonic)
    lines: list[str] = field(factory=list)

    def tell(self, text: str) -> None:
        line = f"{time.monotonic() - self.begun_at:7.1f} s  {text}"
        self.lines.append(line)
        print(line, flush=True)


async def soak(options: argparse.Namespace) -> bool:
    story = Story()
    with tempfile.TemporaryDirectory(prefix="postledger-soak-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        async with (
            serving(home) as server,
            crew(server.dsn, home, slow=options.slow, lease=options.lease, concurrency=options.concurrency) as hired,
        ):
            run = Run(server.dsn, hired.caught)
            await begin(run, hired, options, story)
            background = asyncio.create_task(show(run, options.size))
            ending = await break_things(run, hired, server, options, story)
            background.cancel()
            report(ending, story)
            return sound(ending)


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[PrivateServer]:
    """A server with durability on, as anybody's would be."""
    folder = home / "server"
    folder.mkdir()
    server = PrivateServer(folder, {"fsync": "on", "full_page_writes": "on"})
    with watched(folder):
        await server.start()
        await migrate_template(await server.create_database("postledger"))
        try:
            yield server
        finally:
            await server.stop("fast")


async def begin(run: Run, hired: Crew, options: argparse.Namespace, story: Story) -> None:
    await hired.start_workers(options.workers)
    story.tell(f"{options.workers} workers with {options.concurrency} sends at a time each")
    await run.start(hired.url, options.size, unknown=options.unknown)
    story.tell(f"{options.size:,} recipients written down, the campaign started")


async def break_things(
    run: Run, hired: Crew, server: PrivateServer, options: argparse.Namespace, story: Story
) -> Ending:
    """At a fifth, two fifths and three fifths of the way; the stopped one is continued when its rows are free."""
    await run.until_sent(options.size // 5, HOURS)
    await kill_one(run, hired, story)

    await run.until_sent(options.size * 2 // 5, HOURS)
    story.tell("PostgreSQL is stopped by force and started again")
    at = time.monotonic()
    await server.stop("immediate")
    await server.start()
    story.tell(f"it answers after {time.monotonic() - at:.1f} s; mail flows {await run.until_progress():.1f} s later")

    await run.until_sent(options.size * 3 // 5, HOURS)
    await stop_one(run, hired, story)

    await run.until_completed(HOURS)
    story.tell("the campaign is completed")
    await hired.end()
    return await run.ending()


async def kill_one(run: Run, hired: Crew, story: Story) -> None:
    victim = hired.worker(await run.watcher())
    await run.until_held(int(victim.said))
    await victim.kill()
    hired.children.remove(victim)
    story.tell(f"worker {victim.said}, who watched the others, is killed (SIGKILL)")
    story.tell(f"its rows are free again after {await run.until_free(int(victim.said)):.1f} s")


async def stop_one(run: Run, hired: Crew, story: Story) -> None:
    victim = hired.worker(await run.watcher())
    await run.until_held(int(victim.said))
    victim.send(signal.SIGSTOP)
    story.tell(f"worker {victim.said}, who watched the others, is stopped (SIGSTOP); its lease is {hired.lease:g} s")
    story.tell(f"its rows are free again after {await run.until_free(int(victim.said)):.1f} s")
    victim.send(signal.SIGCONT)
    story.tell(f"worker {victim.said} continued (SIGCONT)")


async def show(run: Run, size: int) -> None:
    while sys.stdout.isatty():
        print(f"\r{run.mails():>9,} of {size:,} mails", end="\r", flush=True)
        await asyncio.sleep(1)


def report(ending: Ending, story: Story) -> None:
    seconds = time.monotonic() - story.begun_at
    print(f"\n{ending.audience:,} recipients in {seconds:.0f} s, {ending.audience / seconds:.0f} a second")
    print("counts:            " + ", ".join(f"{n:,} {name}" for name, n in ending.counts.items()))
    print(f"receiving server:  {ending.mails:,} mails, {ending.doubled:,} recipients with more than one copy")
    print(f"unknown outcomes:  {ending.unknown:,} recorded; copies beyond them: {ending.unexplained}")
    print(f"late outcomes:     {ending.late:,} kept as evidence")
    print(f"missing:           {ending.missing}; claims left: {ending.claims}")
    print("audit verify:      " + ("equal" if not ending.differences else f"{len(ending.differences)} differences"))


def sound(ending: Ending) -> bool:
    try:
        ending.check()
    except AssertionError as error:
        print(f"\nFAILED: {error}")
        return False
    return True


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="recipients (%(default)s)")
    parser.add_argument("--workers", type=int, default=3, help="worker processes, three at least (%(default)s)")
    parser.add_argument("--concurrency", type=int, default=50, help="sends at a time of each worker (%(default)s)")
    parser.add_argument(
        "--slow", type=float, default=0.03, help="seconds that the relay takes for a mail (%(default)s)"
    )
    parser.add_argument("--lease", type=float, default=60.0, help="seconds (%(default)s)")
    parser.add_argument("--unknown", choices=("resend", "hold"), default="resend", help="(%(default)s)")
    options = parser.parse_args()
    if options.workers < 3:
        parser.error("--workers: one is killed, one is stopped, and somebody has to go on")
    return options


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    raise SystemExit(0 if asyncio.run(soak(read_arguments())) else 1)
