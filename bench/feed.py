"""The live feed: milliseconds from an application's commit to the event at a client, and how fast one catches up."""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from contextlib import AsyncExitStack

import asyncpg

from bench.campaign import start, write_down
from bench.run import Bench, on_a_server
from bench.service import Service, service
from postledger.client import Client
from postledger.database import Connection, Database
from postledger.http.api.drafts import NewCampaign
from postledger.http.api.senders import NewSender
from postledger.ledger import campaigns
from postledger.ledger.log_documents import Event
from postledger.ledger.sealing import seal_all
from postledger.projections.follow import Checkpoint

WELCOME = "SELECT postledger.enqueue('welcome', $1, key => $1)"


class Subscribers:
    """Streams that note when each Queued event came, by delivery."""

    def __init__(self, to: Service, count: int) -> None:
        self.to = to
        self.count = count
        self.seen: list[dict[int, float]] = [{} for _ in range(count)]
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Subscribers:
        ready = [asyncio.Event() for _ in range(self.count)]
        for number in range(self.count):
            self._tasks.append(asyncio.ensure_future(self._follow(self.seen[number], ready[number])))
        await asyncio.gather(*(one.wait() for one in ready))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, seen: dict[int, float], ready: asyncio.Event) -> None:
        async with Client(self.to.url, self.to.key) as client:
            async for message in client.feed():
                ready.set()  # a progress comes first
                if isinstance(message, Event) and message.type == "Queued":
                    seen[message.delivery_id] = time.perf_counter()


async def standing(to: Service) -> None:
    """A campaign that an application may put mails into."""
    async with Client(to.url, to.key) as client:
        await client.create_sender(NewSender(name="nowhere", url="null://", mail_from="Shop <news@shop.example>"))
        new = NewCampaign(name="welcome", kind="standing", subject="Welcome", html="<p>Welcome</p>", sender="nowhere")
        await client.start((await client.create_campaign(new)).id)


async def commits(conn: asyncpg.Connection, count: int, pause: float) -> dict[int, float]:
    """When each of so many mails was about to be committed; at moments that have nothing to do with the service's."""
    sent: dict[int, float] = {}
    for number in range(count):
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
        transaction = conn.transaction()
        await transaction.start()
        delivery = await conn.fetchval(WELCOME, f"user{number}.{time.monotonic_ns()}@example.com")
        sent[delivery] = time.perf_counter()
        await transaction.commit()
    return sent


async def latency(to: Service, count: int, streams: int, pause: float, label: str) -> None:
    conn = await asyncpg.connect(to.dsn)
    async with Subscribers(to, streams) as subscribers:
        sent = await commits(conn, count, pause)
        until = time.monotonic() + 60
        while any(sent.keys() - seen.keys() for seen in subscribers.seen):
            assert time.monotonic() < until, "an event did not come"
            await asyncio.sleep(0.05)
        times = sorted(1000 * (seen[one] - at) for seen in subscribers.seen for one, at in sent.items())
    await conn.close()
    p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
    print(
        f"| {label}, {streams} stream(s) | p50 {p50:.0f} ms, p99 {p99:.0f} ms, worst {times[-1]:.0f} ms |", flush=True
    )


async def drain(to: Service, conn: Connection, name: str, count: int) -> None:
    """A campaign that is being sent beside what is measured."""
    campaign = await write_down(conn, name, "null://", (f"user{n}@example.com" for n in range(count)))
    await start(conn, campaign)


async def catch_up(to: Service) -> None:
    """Events a second of one stream that begins at the beginning."""
    async with Database(to.dsn).connection(label="bench") as conn:
        await seal_all(conn)
        total = await conn.fetchval("SELECT sum(n) FROM blocks")
    async with Client(to.url, to.key) as client:
        feed = client.feed(only="events", after=Checkpoint().encode())
        began, count = time.perf_counter(), 0
        async for _ in feed:
            count += 1
            if count == total:
                break
        took = time.perf_counter() - began
    print(f"| one stream from the beginning, {total:,} events | {count / took:,.0f} events/s |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--streams", type=int, nargs="*", default=[1, 100])
    parser.add_argument("--recipients", type=int, default=300_000, help="of the campaign that is sent beside it")
    options = parser.parse_args()

    async def run(bench: Bench) -> None:
        async with service(bench.admin, "feed", "up") as to, Database(to.dsn).connection(label="bench") as conn:
            await standing(to)
            for streams in options.streams:
                await latency(to, options.commits, streams, 0.05, "commit to client")
            await drain(to, conn, "beside", options.recipients)
            await latency(to, options.commits, 1, 0.02, f"the same while {options.recipients:,} are sent")
            while (await campaigns.counts(conn, 2))["pending"]:  # noqa: ASYNC110 - another process sends
                await asyncio.sleep(0.2)
            await catch_up(to)

    on_a_server(run)


if __name__ == "__main__":
    main()
