"""The long proof that blocks are exactly what was committed, once, in order, and that no checkpoint passes anything.

`python -m tests.sealing.proof` from the repository; --help has the sizes. Not collected by pytest. First a state
machine over explicit transactions, against a model; then a storm of writers, sealers and followers while connections
and the server are killed. Every seed is printed, and what was done. Whatever is not as it must be ends it.
"""

import argparse
import asyncio
import logging
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import structlog
from hypothesis import settings

from tests.lab import open_lab
from tests.sealing.conftest import PREPARES
from tests.sealing.log import make_seen
from tests.sealing.storm import Storm
from tests.sealing.test_machine import TALLY, search
from tests.servers import TEMPLATE, PrivateServer, migrate_template, watched


def machine(home: Path, examples: int, steps: int) -> Counter[str]:
    """Examples that nobody has chosen, each other than all before it."""
    server = PrivateServer(home, PREPARES)
    with watched(home):
        asyncio.run(_start(server, TEMPLATE))
        try:
            with open_lab(server) as lab:
                lab.run(make_seen(lab.owner))
                search(lab, settings(max_examples=examples, stateful_step_count=steps, database=None))
        finally:
            asyncio.run(server.stop("immediate"))
    return TALLY


async def storm(home: Path, seed: int, rounds: int, transactions: int) -> Counter[str]:
    """The server is killed after each round but the last."""
    server = PrivateServer(home, PREPARES)
    with watched(home):
        await _start(server, "postledger")
        try:
            raging = Storm(server, random.Random(seed), writers=4)
            await raging.begin()
            for number in range(1, rounds + 1):
                await raging.round(transactions, kill=number < rounds)
            await raging.check()
        finally:
            await server.stop("immediate")
    return raging.tally


async def _start(server: PrivateServer, database: str) -> None:
    await server.start()
    await migrate_template(await server.create_database(database))


def tell(what: str, tally: Mapping[str, int], since: float) -> None:
    counts = ", ".join(f"{number:,} {name}" for name, number in sorted(tally.items()))
    print(f"{what}: {counts}; {time.monotonic() - since:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--examples", type=int, default=1000, help="of the state machine; 0: none")
    parser.add_argument("--steps", type=int, default=60, help="in each example, at most")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3], help="one storm for each")
    parser.add_argument(
        "--rounds", type=int, default=8, help="of a storm, with a kill of the server after each but the last"
    )
    parser.add_argument("--transactions", type=int, default=400, help="in each round")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory(prefix="postledger-proof-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        for name in ("machine", *map(str, options.seeds)):
            (Path(folder) / name).mkdir()
        if options.examples:
            began = time.monotonic()
            tell("machine", machine(Path(folder) / "machine", options.examples, options.steps), began)
        total: Counter[str] = Counter()
        for seed in options.seeds:
            began = time.monotonic()
            found = asyncio.run(storm(Path(folder) / str(seed), seed, options.rounds, options.transactions))
            tell(f"storm {seed}", found, began)
            total += found
        tell("storms together", total, time.monotonic())


if __name__ == "__main__":
    main()
