"""People uploaded over HTTP: rows a second from the first byte to the answer, and what the service needs for it."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import orjson
from aiohttp import ClientSession, ClientTimeout

from bench.run import Bench, middle, on_a_server, peak_memory
from bench.service import Service, service
from postledger.client import Client
from postledger.http.api.drafts import NewCampaign
from postledger.http.api.senders import NewSender

LETTER = '<p>Hello {{ name }} in {{ town }}, <a href="{{ unsubscribe_url }}">no more</a></p>'
TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv"}


def write(folder: Path, form: str, count: int) -> Path:
    """So many people in a file."""
    path = folder / f"people.{form}"
    with path.open("wb") as out:
        if form == "csv":
            out.write(b"email,name,town\n")
        for n in range(count):
            email, name = f"user{n}@mail{n % 1000}.example.com", f"Person {n}"
            line = f"{email},{name},Ulm\n".encode()
            if form == "ndjson":
                line = orjson.dumps({"email": email, "name": name, "town": "Ulm"}, option=orjson.OPT_APPEND_NEWLINE)
            out.write(line)
    return path


async def draft(to: Service) -> int:
    async with Client(to.url, to.key) as client:
        await client.create_sender(NewSender(name="nowhere", url="null://", mail_from="Shop <news@shop.example>"))
        new = NewCampaign(name="spring", subject="Hello", html=LETTER, sender="nowhere")
        return (await client.create_campaign(new)).id


async def upload(to: Service, path: Path, form: str, count: int) -> tuple[float, float]:
    """Rows a second, and by how many MB the service's peak has grown."""
    campaign = await draft(to)
    before = peak_memory(to.pid)
    headers = {"Authorization": f"Bearer {to.key}", "Content-Type": TYPES[form]}
    async with ClientSession(timeout=ClientTimeout(total=None)) as session:
        began = time.perf_counter()
        with path.open("rb") as file:
            url = f"{to.url}/v1/campaigns/{campaign}/recipients"
            async with session.post(url, data=file, headers=headers) as response:
                report = orjson.loads(await response.read())
                assert response.status == 200, report
        took = time.perf_counter() - began
    assert report["accepted"] == count, report
    return count / took, peak_memory(to.pid) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--forms", nargs="*", default=["ndjson", "csv"], choices=list(TYPES))
    options = parser.parse_args()

    async def run(bench: Bench) -> None:
        number = 0
        with tempfile.TemporaryDirectory() as folder:
            for form in options.forms:
                path = write(Path(folder), form, options.rows)
                rates: list[float] = []
                grown: list[float] = []
                for _ in range(options.rounds):
                    number += 1
                    async with service(bench.admin, f"upload_{number}") as to:
                        rate, memory = await upload(to, path, form, options.rows)
                    rates.append(rate)
                    grown.append(memory)
                    print(f"  {form:8} {rate:10,.0f} rows/s, {memory:6.1f} MB more", flush=True)
                size = path.stat().st_size / 1e6
                print(
                    f"| upload of {options.rows:,} as {form} ({size:.0f} MB) | {middle(rates)} rows/s "
                    f"| memory grew by {statistics.median(grown):.0f} MB |",
                    flush=True,
                )

    on_a_server(run)


if __name__ == "__main__":
    main()
