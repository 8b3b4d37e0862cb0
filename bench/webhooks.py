"""`python -m bench.webhooks`: signed events a second that one process commits, and how long a post waits."""

import argparse
import asyncio
import base64
import hashlib
import hmac
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiohttp
from attrs import frozen
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench.campaign import write_down
from bench.run import Bench, on_a_server
from postledger.database import Database

PEOPLE = 20_000
KEY = secrets.token_hex(16)
SENDGRID = ec.generate_private_key(ec.SECP256R1())
ARRAY = 20
"""Events in a post of SendGrid; under load it sends more."""
LEAVE_OUT = 1.0
"""Seconds at the beginning, in which connections are opened and statements planned."""

Post = tuple[str, bytes, dict[str, str]]
COMMITTED = "SELECT count(*) FROM postledger.feedback WHERE campaign_id IS NOT NULL"


@frozen
class Line:
    """`rate`: events a second that were asked for, None: as many as can be had; the others are what came of it."""

    way: str
    rate: int | None
    events: float
    posts: float
    waits_ms: Sequence[float]
    refused: int

    def __str__(self) -> str:
        p50, p99 = (self.waits_ms[int(len(self.waits_ms) * share)] for share in (0.5, 0.99))
        asked = f"{self.rate:,}" if self.rate else "all it can"
        figures = f"{self.events:8,.0f} | {self.posts:8,.0f} | {p50:7.1f} | {p99:7.1f} | {self.waits_ms[-1]:7.1f}"
        return f"| {self.way:8} | {asked:>10} | {figures} | {self.refused} |"


HEAD = (
    "| provider | events/s asked | events/s committed | posts/s | p50 ms | p99 ms | longest ms | not 200 |\n"
    + "|---" * 8
    + "|"
)


def mailgun(mails: Iterator[tuple[str, str]]) -> Post:
    """One event, as Mailgun posts them."""
    reference, address = next(mails)
    now = time.time()
    stamp, token = str(int(now)), secrets.token_hex(25)
    signature = hmac.new(KEY.encode(), (stamp + token).encode(), hashlib.sha256).hexdigest()
    data = {
        "event": "delivered",
        "id": secrets.token_urlsafe(16),
        "timestamp": now,
        "recipient": address,
        "message": {"headers": {"message-id": f"{token}@mail.example.com", "to": address, "subject": "March issue"}},
        "tags": ["march-issue"],
        "user-variables": {"delivery_id": reference},
        "envelope": {"transport": "smtp", "sender": "news@mail.example.com", "sending-ip": "192.0.2.10"},
        "delivery-status": {"attempt-no": 1, "code": 250, "message": "OK", "mx-host": "mx.example.net", "tls": True},
    }
    post = {"signature": {"timestamp": stamp, "token": token, "signature": signature}, "event-data": data}
    return "mailgun", json.dumps(post).encode(), {"Content-Type": "application/json"}


def sendgrid(mails: Iterator[tuple[str, str]]) -> Post:
    """An array of events, signed as a whole."""
    events = [
        {
            "event": "delivered",
            "email": address,
            "timestamp": int(time.time()),
            "sg_event_id": secrets.token_urlsafe(24),
            "sg_message_id": f"{secrets.token_urlsafe(16)}.recvd-1",
            "delivery_id": reference,
            "category": ["march-issue"],
            "response": "250 2.0.0 OK queued",
        }
        for reference, address in (next(mails) for _ in range(ARRAY))
    ]
    body, stamp = json.dumps(events).encode(), str(int(time.time()))
    signature = base64.b64encode(SENDGRID.sign(stamp.encode() + body, ec.ECDSA(SHA256()))).decode()
    headers = {
        "Content-Type": "application/json",
        "X-Twilio-Email-Event-Webhook-Signature": signature,
        "X-Twilio-Email-Event-Webhook-Timestamp": stamp,
    }
    return "sendgrid", body, headers


WAYS: dict[str, tuple[Callable[[Iterator[tuple[str, str]]], Post], int]] = {
    "mailgun": (mailgun, 1),
    "sendgrid": (sendgrid, ARRAY),
}


@contextmanager
def serving(dsn: str) -> Iterator[str]:
    """The service as a process of its own, and its address."""
    public = SENDGRID.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    keys = {"POSTLEDGER_WEBHOOK_MAILGUN": KEY, "POSTLEDGER_WEBHOOK_SENDGRID": base64.b64encode(public).decode()}
    process = subprocess.Popen(
        [sys.executable, "-m", "postledger", "serve", "--database", dsn, "--http", "127.0.0.1:0"],
        env={**os.environ, **keys},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        while "http://" not in (line := process.stderr.readline()):
            if not line:
                raise SystemExit("the service has ended before it served")
        yield "http://" + line.partition("http://")[2].split()[0].strip("\"',")
    finally:
        process.kill()
        process.communicate()


async def measure(dsn: str, way: str, rate: int | None, seconds: float, concurrency: int) -> Line:
    """Posts at a steady rate, or as many as `concurrency` callers get through; the database counts the events."""
    make, size = WAYS[way]
    waits: list[tuple[float, float]] = []
    refused = 0
    async with Database(dsn).connection(label="bench") as conn:
        rows = await conn.fetch("SELECT campaign_id, delivery_id, email FROM recipients ORDER BY delivery_id")
        mails = cycle([(f"{row['campaign_id']}.{row['delivery_id']}", row["email"]) for row in rows])
        # Signing is the provider's work: it is done beforehand.
        count = int((rate or 6_000) * (seconds + LEAVE_OUT) / size) + concurrency
        posts = iter([make(mails) for _ in range(count)])
        with serving(dsn) as url:
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(connector=connector) as session:
                began = time.perf_counter()
                until = began + LEAVE_OUT + seconds

                async def one(post: Post, due: float) -> None:
                    nonlocal refused
                    provider, body, headers = post
                    async with session.post(f"{url}/webhooks/{provider}", data=body, headers=headers) as answer:
                        await answer.read()
                        refused += answer.status != 200
                    waits.append((due, time.perf_counter() - due))

                async def caller() -> None:
                    while time.perf_counter() < until and (post := next(posts, None)) is not None:
                        await one(post, time.perf_counter())

                async def marked() -> tuple[int, float]:
                    return await conn.fetchval(COMMITTED), time.perf_counter()

                async with asyncio.TaskGroup() as group:
                    first = group.create_task(later(LEAVE_OUT, marked))
                    if rate is None:
                        for _ in range(concurrency):
                            group.create_task(caller())
                    else:
                        for number in range(int(rate * (seconds + LEAVE_OUT) / size)):
                            due = began + number * size / rate
                            await asyncio.sleep(max(due - time.perf_counter(), 0))
                            group.create_task(one(next(posts), due))
                before, at = first.result()
                after, ended = await marked()
    took = ended - at
    kept = sorted(wait * 1000 for due, wait in waits if due >= began + LEAVE_OUT)
    return Line(way, rate, (after - before) / took, len(kept) / took, kept, refused)


async def later(seconds: float, work: Callable[[], object]) -> object:
    await asyncio.sleep(seconds)
    return await work()  # type: ignore[misc]


def cycle(values: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    while True:
        yield from values


async def run(bench: Bench, arguments: argparse.Namespace) -> list[Line]:
    lines = []
    for way in WAYS:
        for rate in (None, *arguments.rates):
            dsn = await bench.fresh("postledger")
            async with Database(dsn).connection(label="bench") as conn:
                people = (f"p{n}@mail{n % 100}.example" for n in range(arguments.people))
                await write_down(conn, "news", "null://", people)
                await conn.execute("ANALYZE events, recipients, recipient_queue")
            line = await measure(dsn, way, rate, arguments.seconds, arguments.concurrency)
            print(line, flush=True)
            lines.append(line)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--concurrency", type=int, default=100, help="callers, where no rate is asked for")
    parser.add_argument("--rates", type=int, nargs="*", default=[1_500], help="events a second, steadily")
    parser.add_argument("--json", type=Path, help="write every figure there")
    arguments = parser.parse_args()
    print(HEAD, flush=True)
    lines = on_a_server(lambda bench: run(bench, arguments))
    if arguments.json:
        shown = [
            {
                "way": line.way,
                "rate": line.rate,
                "events": line.events,
                "posts": line.posts,
                "p50_ms": statistics.median(line.waits_ms),
                "p99_ms": line.waits_ms[int(len(line.waits_ms) * 0.99)],
                "refused": line.refused,
            }
            for line in lines
        ]
        arguments.json.write_text(json.dumps(shown, indent=1))


if __name__ == "__main__":
    main()
