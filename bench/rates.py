"""`python -m bench.rates`: whether workers together keep a sender's rate, over SMTP and where whole batches leave."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import timedelta

from attrs import frozen

from bench.campaign import start, write_down
from bench.relay import Relay
from bench.run import Bench, on_a_server
from postledger.database import Connection, Database
from postledger.ledger import senders
from postledger.ledger.senders import Rate

TAKES = timedelta(milliseconds=5)
LEAVE_OUT = 1.0
"""Seconds at the beginning, while connections are opened; the most within a second is looked for there too."""


@frozen
class Line:
    """`mean`: mails a second after the beginning; `most`: within any second, wherever it begins."""

    way: str
    rate: int
    workers: int
    mean: float
    most: int

    def __str__(self) -> str:
        share, burst = (f"{100 * value / self.rate:5.1f} %" for value in (self.mean, self.most))
        asked = f"| {self.way:5} | {self.rate:5} | {self.workers} |"
        return f"{asked} {self.mean:7.1f} | {share} | {self.most:5} | {burst} |"


HEAD = "| way | rate a second | workers | mean | of the rate | most in a second | of the rate |\n" + "|---" * 7 + "|"


def most_in_a_second(moments: Sequence[float]) -> int:
    most = first = 0
    for last, at in enumerate(moments):
        while moments[first] <= at - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


def line_of(way: str, rate: int, workers: int, moments: Sequence[float], seconds: float) -> Line:
    begin = moments[0] + LEAVE_OUT
    end = moments[0] + seconds
    mean = sum(begin <= at < end for at in moments) / (seconds - LEAVE_OUT)
    return Line(way, rate, workers, mean, most_in_a_second([at for at in moments if at < end]))


async def claimed(conn: Connection, campaign_id: int) -> list[float]:
    """When each was claimed, by the database's clock: where nothing is received that is the begin of the mail."""
    query = (
        "SELECT extract(epoch FROM at)::float8 AS at FROM postledger.events WHERE campaign_id = $1 AND type = 'Claimed'"
    )
    return sorted(row["at"] for row in await conn.fetch(query, campaign_id))


async def measure(bench: Bench, way: str, rate: int, workers: int, seconds: int) -> Line:
    dsn = await bench.fresh("postledger")
    async with Relay(TAKES, TAKES) as relay, Database(dsn).connection(label="bench") as conn:
        url = relay.url if way == "smtp" else "null://"
        people = (f"p{n}@example.com" for n in range(rate * (seconds + 3)))
        campaign_id = await write_down(conn, "bench", url, people)
        await senders.set_rate(conn, await senders.keep(conn, url), Rate.read(f"{rate}/s"))
        with bench.workers("postledger", dsn, workers):
            await start(conn, campaign_id)
            await asyncio.sleep(seconds + 1)
        moments = [at for at, _ in relay.taken] if way == "smtp" else await claimed(conn, campaign_id)
    return line_of(way, rate, workers, moments, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--ways", default="smtp,null")
    parser.add_argument("--rates", default="100,1000")
    parser.add_argument("--workers", default="1,2,3")
    arguments = parser.parse_args()
    rates, counts = (list(map(int, text.split(","))) for text in (arguments.rates, arguments.workers))

    async def run(bench: Bench) -> None:
        print(HEAD, flush=True)
        for way in arguments.ways.split(","):
            for rate in rates:
                for workers in counts:
                    print(await measure(bench, way, rate, workers, arguments.seconds), flush=True)

    on_a_server(run)


if __name__ == "__main__":
    main()
