"""The catcher as a process of its own, which takes a moment for each mail: so that somebody can die meanwhile."""

import argparse
import asyncio
import signal
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import uvloop

from postledger.demo.behaviours import Accept, Behaviour, Choice, Slow, by_tag
from postledger.demo.catcher import Catcher
from postledger.demo.keepers import log_to


def slow(longest: float) -> Choice:
    """What the address asks for; where it asks for nothing, up to `longest` seconds, by the address."""

    def choose(recipient: str) -> Behaviour:
        asked = by_tag(recipient)
        if asked != Accept() or not longest:
            return asked
        return Slow(timedelta(seconds=longest * (0.5 + crc32(recipient.encode()) / 2**33)))

    return choose


async def serve(arguments: argparse.Namespace) -> None:
    """Until SIGTERM; says its port as soon as it listens, and writes a line for each mail before it says 250."""
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    async with Catcher(slow(arguments.slow), [log_to(arguments.log)], counting=False) as catcher:
        print(catcher.port, flush=True)
        await stopped.wait()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--slow", type=float, default=0.03)
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(serve(read_arguments()))
