"""The running service against its own description: requests made of it, good and bad, and answers held to it."""

import asyncio
import os
import re
import sys
from pathlib import Path

from postledger.http.guards import GUARDS
from postledger.http.limits import Buckets

from .conftest import Api

PERSON = {"email": "ann@example.com", "name": "Ann", "data": {"town": "Ulm"}}

ROOT = Path(__file__).parents[2]

CONFIG = Path(__file__).with_name("described.toml")

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
)
"""All but those that take a value which cannot be known from a schema (no such campaign, a conflict) for a fault."""

STREAMS = ("/v1/events/stream",)
"""Answers that never end have tests of their own."""

EXAMPLES = 2
SEED = 20_260_101


async def populate(api: Api) -> None:
    """Something of everything, so that answers are more than empty lists; the first of each has the id 1."""
    await api.post("/v1/senders", {"name": "relay", "url": "null://?render=1"})
    letter = {"subject": "Hello {{ name|default('you') }}", "html": "<p>Hello</p>"}
    common = {"from": "news@shop.example", "sender": "relay", **letter}
    bulk = await api.post("/v1/campaigns", {"name": "spring", **common})
    assert bulk.status == 201, bulk.content
    standing = await api.post("/v1/campaigns", {"name": "welcome", "kind": "standing", **common})
    await api.post(f"/v1/campaigns/{standing.json['id']}/start", {})
    for path, body in (
        ("/v1/messages", {"campaign": "welcome", "email": "ann@example.com"}),
        (f"/v1/campaigns/{bulk.json['id']}/recipients", {"items": [{"email": "ann@example.com"}]}),
        ("/v1/templates", letter),
        ("/v1/lists", {"name": "digest"}),
        ("/v1/lists/1/subscribe", PERSON),
        ("/v1/suppressions", {"email": "gone@example.com"}),
    ):
        made = await api.post(path, body)
        assert made.status < 300, made.content


async def run(api: Api, folder: Path, *more: str) -> tuple[int, str]:
    """The tool's exit code and what it says."""
    leave_out = [word for path in STREAMS for word in ("--exclude-path", path)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"{api.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {api.key}", "--checks", ",".join(CHECKS), *leave_out),
        *("--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--seed", str(SEED)),
        *("--generation-deterministic", "--no-color", *more),
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.web.described_hooks", "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


async def test_the_service_is_what_its_description_says(api: Api, tmp_path: Path) -> None:
    api.app[GUARDS].strangers = Buckets(rate=1e6, burst=1e6)  # a limit on guesses, and guessing is what the tool does
    await populate(api)
    code, said = await run(api, tmp_path)
    assert code == 0, said[-20_000:]
    assert re.search(r"\b\d{3,} generated", said), said[-2000:]
