"""What it takes to write a million people down, and one mail in an application's transaction; ratios of one run."""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import structlog

from bench.run import SETTINGS
from postledger.database import Database, migrate
from postledger.embedded.server import Server

ROOT = Path(__file__).parent.parent
USERS = """
CREATE TABLE public.users (id bigint PRIMARY KEY, email text NOT NULL, name text, town text);
INSERT INTO public.users
SELECT n, 'user' || n || '@mail' || n % 1000 || '.example.com', 'Person ' || n, 'Ulm'
FROM generate_series(1, {count}) n;
CREATE TABLE public.signups (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, email text NOT NULL UNIQUE, name text);
"""
QUERY = "SELECT email, name, town FROM public.users"
# The same rows, made of the same table, into a table like `recipients` with its three unique keys; nothing else.
RECIPIENTS_ALONE = """
INSERT INTO recipients_alone (campaign_id, delivery_id, recipient_key, email, name, data, salt, address_hash, once_hash)
SELECT 1, nextval('delivery_ids'), u.email, u.email, u.name, u.data, uuid_send(gen_random_uuid()), u.hash, u.hash
FROM (SELECT p.email, p.name, jsonb_build_object('town', p.town) AS data,
             keyed_hash(s.inner_key, s.outer_key, p.email) AS hash
      FROM public.users p CROSS JOIN secrets s WHERE s.name = 'address') u
"""
# The same again, with everything that is computed laid ready beforehand: nothing but the writing.
READY = """
CREATE UNLOGGED TABLE ready AS
SELECT nextval('delivery_ids') AS id, u.email, u.name, jsonb_build_object('town', u.town) AS data,
       uuid_send(gen_random_uuid()) AS salt, address_hash(u.email) AS hash FROM public.users u
"""
READY_ALONE = """
INSERT INTO recipients_alone (campaign_id, delivery_id, recipient_key, email, name, data, salt, address_hash, once_hash)
SELECT 1, id, email, email, name, data, salt, hash, hash FROM ready
"""
SIGNUP = "INSERT INTO public.signups (email, name) VALUES ($1, 'Ann') RETURNING id"
WELCOME = """SELECT postledger.enqueue('welcome', $1, key => $2, name => 'Ann', data => '{"town": "Ulm"}')"""

Timed = Callable[[], Awaitable[float]]
Figures = dict[str, list[float]]


class Writing:
    """One server, a fresh database for each measurement, in a folder with the letter and the file."""

    def __init__(self, admin: str, folder: Path, count: int) -> None:
        self.admin = admin
        self.folder = folder
        self.count = count
        self.number = 0
        (folder / "letter.html").write_text("<p>Hello {{ name }} in {{ town }}</p>")

    async def fresh(self) -> str:
        """A database with the schema, and the users of an application."""
        self.number += 1
        conn = await asyncpg.connect(self.admin)
        await conn.execute(f"CREATE DATABASE writing_{self.number}")
        await conn.close()
        dsn = urlsplit(self.admin)._replace(path=f"/writing_{self.number}").geturl()
        await migrate(dsn)
        conn = await asyncpg.connect(dsn)
        await conn.execute(USERS.format(count=self.count))
        await conn.execute("VACUUM ANALYZE public.users")
        await conn.close()
        return dsn

    async def drop(self, dsn: str) -> None:
        conn = await asyncpg.connect(self.admin)
        await conn.execute(f"DROP DATABASE {urlsplit(dsn).path[1:]} WITH (FORCE)")
        await conn.execute("CHECKPOINT")
        await conn.close()

    def postledger(self, dsn: str, *arguments: str) -> float:
        """Seconds of a whole command, the start of Python in it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTLEDGER_")}
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "postledger", *arguments],
            env=kept | {"POSTLEDGER_DATABASE": dsn},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.perf_counter() - began
        if done.returncode:
            raise SystemExit(f"postledger {arguments[0]}: {done.stderr[-2000:]}")
        return took

    def send(self, dsn: str, *people: str) -> float:
        return self.postledger(
            *(dsn, "send", *people, "--no-wait", "--quiet", "--name", "digest", "--subject", "Your week"),
            *("--from", "Shop <news@shop.example>", "--html", "letter.html", "--via", "null://"),
        )

    async def by_query(self, *, alone_first: bool) -> dict[str, float]:
        """`send --query --no-wait` beside INSERT ... SELECT into `recipients` alone, in one database, by turns."""
        dsn = await self.fresh()
        async with Database(dsn).connection(role=None, label="bench") as conn:
            await conn.execute(READY)

            async def ours() -> float:
                took = self.send(dsn, "--query", QUERY)
                written = await conn.fetchval("SELECT count(*) FROM recipient_queue")
                assert written == self.count, written
                return took

            async def alone(statement: str) -> float:
                await conn.execute("CREATE TABLE recipients_alone (LIKE recipients INCLUDING ALL)")
                await conn.execute("CHECKPOINT")
                took = await timed(lambda: conn.execute(statement))
                await conn.execute("DROP TABLE recipients_alone")
                return took

            steps: dict[str, Timed] = {
                "query s": ours,
                "alone s": lambda: alone(RECIPIENTS_ALONE),
                "ready alone s": lambda: alone(READY_ALONE),
            }
            found: dict[str, float] = {}
            for name in sorted(steps, key=lambda name: (name == "query s") == alone_first):
                await conn.execute("CHECKPOINT")
                found[name] = await steps[name]()
        await self.drop(dsn)
        ratios = {"query / alone": "alone s", "query / ready alone": "ready alone s"}
        return found | {name: found["query s"] / found[base] for name, base in ratios.items()}

    async def by_file(self) -> dict[str, float]:
        """`send --to million.csv --no-wait`, the whole command."""
        file = self.folder / "people.csv"
        if not file.exists():
            with file.open("w") as lines:
                lines.write("email,name,town\n")
                lines.writelines(f"user{n}@mail{n % 1000}.example.com,Person {n},Ulm\n" for n in range(self.count))
        dsn = await self.fresh()
        took = self.send(dsn, "--to", "people.csv")
        await self.drop(dsn)
        return {"csv s": took, "csv rows/s": self.count / took}

    async def in_transactions(self, transactions: int) -> dict[str, float]:
        """Milliseconds of an application's signup, by turns with a mail in it and without."""
        dsn = await self.fresh()
        kind = ("--kind", "standing", "--name", "welcome", "--subject", "Welcome", "--html", "letter.html")
        self.postledger(dsn, "campaign", "create", *kind, "--from", "shop@shop.example", "--via", "null://")
        self.postledger(dsn, "campaign", "start", "welcome")
        conn = await asyncpg.connect(dsn)
        times: dict[bool, list[float]] = {True: [], False: []}

        async def sign_up(email: str, *, mail: bool) -> None:
            async with conn.transaction():
                user = await conn.fetchval(SIGNUP, email)
                if mail:
                    await conn.fetchval(WELCOME, email, f"user:{user}")

        for email, mail in turns(transactions):
            times[mail].append(1000 * await timed(partial(sign_up, email, mail=mail)))
        await conn.close()
        await self.drop(dsn)
        middle = {mail: statistics.median(values[transactions // 20 :]) for mail, values in times.items()}
        return {
            "signup ms": middle[False],
            "signup, mail ms": middle[True],
            "enqueue() adds ms": middle[True] - middle[False],
        }


def turns(transactions: int) -> Iterator[tuple[str, bool]]:
    """With and without, without and with."""
    for number in range(transactions):
        for mail in (True, False) if number % 2 else (False, True):
            yield f"user{number}-{int(mail)}@x.example", mail


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


async def measure(arguments: argparse.Namespace, writing: Writing) -> Figures:
    found: Figures = {}

    def note(figures: dict[str, float]) -> None:
        for name, value in figures.items():
            found.setdefault(name, []).append(value)
            print(f"  {name:20} {value:12,.2f}", flush=True)

    for number in range(arguments.rounds):
        if "query" in arguments.what:
            note(await writing.by_query(alone_first=number % 2 == 0))
        if "csv" in arguments.what:
            note(await writing.by_file())
        if "enqueue" in arguments.what:
            note(await writing.in_transactions(arguments.transactions))
    return found


def table(found: Figures) -> str:
    lines = ["| figure | median | lowest | highest |", "|---|---|---|---|"]
    for name, values in found.items():
        cells = (f"{value:,.2f}" for value in (statistics.median(values), min(values), max(values)))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--transactions", type=int, default=2_000)
    parser.add_argument(
        "--rounds", type=int, default=2, help="the contender that goes first changes from one to the next"
    )
    parser.add_argument("--what", default="query,csv,enqueue", help="which of these to measure")
    parser.add_argument("--json", type=Path, help="write every figure there")
    arguments = parser.parse_args()

    async def run(folder: Path) -> Figures:
        server = Server.at(folder / "server", settings=SETTINGS)
        (folder / "server").mkdir()
        try:
            return await measure(arguments, Writing(await server.start(), folder, arguments.people))
        finally:
            await server.stop("immediate")

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    with tempfile.TemporaryDirectory(prefix="postledger-bench-") as name:
        Path(name).chmod(0o755)
        found = asyncio.run(run(Path(name)))
    print("\n" + table(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
