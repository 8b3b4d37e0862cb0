"""`python -m bench.together`: twelve campaigns at once over one relay, one of them huge, one's domain hanging."""

import argparse
import asyncio
import statistics
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise

from attrs import frozen

from bench.campaign import start, write_down
from bench.relay import HANGS, Relay
from bench.run import Bench, on_a_server
from postledger.database import Database

CAMPAIGNS = 12
PEOPLE = 3_000
HUGE = 60_000
TAKES = timedelta(milliseconds=5)
HANGS_FOR = timedelta(seconds=20)


@frozen
class Line:
    """What one campaign got: mails in each whole second, and the longest time without one."""

    name: str
    seconds: Sequence[int]
    longest_gap_in: float

    def __str__(self) -> str:
        mean = statistics.mean(self.seconds)
        return f"| {self.name:16} | {min(self.seconds):5} | {mean:7.1f} | {self.longest_gap_in * 1000:9,.0f} |"


def domains() -> list[str]:
    """One for each campaign, so that the relay knows whose a mail is."""
    return ["huge.example", *(f"c{number}.example" for number in range(2, CAMPAIGNS)), HANGS]


def line_of(name: str, moments: Sequence[float], began: float, seconds: int) -> Line:
    inside = [at - began for at in moments if 0 <= at - began < seconds]
    counts = [sum(second <= at < second + 1 for at in inside) for second in range(seconds)]
    gaps = [later - earlier for earlier, later in pairwise([0.0, *inside, float(seconds)])]
    return Line(name, counts, max(gaps))


async def measure(bench: Bench, workers: int, seconds: int) -> list[Line]:
    """All begin together; looked at for so many seconds, from the first mail of any of them."""
    dsn = await bench.fresh("postledger")
    async with Relay(TAKES, HANGS_FOR) as relay, Database(dsn).connection(label="bench") as conn:
        ids = []
        for domain in domains():
            people = HUGE if domain.startswith("huge") else PEOPLE
            ids.append(await write_down(conn, domain, relay.url, (f"p{n}@{domain}" for n in range(people))))
        with bench.workers("postledger", dsn, workers):
            await start(conn, *ids)
            while not relay.taken:  # noqa: ASYNC110 - other processes do the work
                await asyncio.sleep(0.01)
            began = relay.taken[0][0]
            await asyncio.sleep(seconds + 0.5)
        taken = list(relay.taken)
    return [line_of(name, [at for at, domain in taken if domain == name], began, seconds) for name in domains()]


def table(lines: Sequence[Line], workers: int) -> str:
    title = f"{workers} worker{'s' if workers > 1 else ''}: mails a second, of each of {len(lines)} campaigns"
    head = f"| {'campaign':16} | least |    mean | gap in ms |\n|---|---|---|---|"
    total = Line("all", [sum(second) for second in zip(*(line.seconds for line in lines), strict=True)], 0.0)
    return "\n".join([title, head, *map(str, lines), str(total)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--workers", default="1,2", help="how many, in turn")
    arguments = parser.parse_args()

    async def run(bench: Bench) -> None:
        for workers in map(int, arguments.workers.split(",")):
            print(table(await measure(bench, workers, arguments.seconds), workers) + "\n", flush=True)

    on_a_server(run)


if __name__ == "__main__":
    main()
