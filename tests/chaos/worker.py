"""A worker as a process of its own: `postledger work`, with a lease that a test can wait for."""

import argparse
import asyncio
import signal
from datetime import timedelta

import uvloop

from postledger.database import Database
from postledger.workers.worker import Worker, WorkerOptions


async def work(arguments: argparse.Namespace) -> None:
    """Until SIGTERM; says which worker it is as soon as it is there."""
    options = WorkerOptions(
        concurrency=arguments.concurrency, grace=arguments.grace, lease_in=timedelta(seconds=arguments.lease)
    )
    worker = Worker(Database(arguments.dsn), options)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.open()
    print(worker.session.worker, flush=True)
    await worker.run()


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("--concurrency", type=int, default=5)
    parser.add_argument("--grace", type=float, default=10.0)
    parser.add_argument("--lease", type=float, default=60.0)
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(work(read_arguments()))
