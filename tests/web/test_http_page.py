"""docs/http.md: every command on it is run as it stands, in its order, and answers what stands below it."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from attrs import frozen

from tests.web.test_serve import key_of, running

PAGE = Path(__file__).parents[2] / "docs" / "http.md"

GIVEN = ("postledger up", "export API=")
"""What the test itself does: it starts the service, and knows its address and key."""


@frozen
class Example:
    """A command, and what is said to come of it."""

    command: str
    answer: str

    def fits(self, out: str) -> bool:
        pattern = re.escape(self.answer.strip()).replace(re.escape("..."), ".*")
        return re.fullmatch(pattern, out.strip(), re.DOTALL) is not None


def examples(page: str) -> list[Example]:
    found: list[Example] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, answer = _command(part)
            found.append(Example(command, answer))
    return found


def _command(part: str) -> tuple[str, str]:
    """A command goes on while a line ends in a backslash, or a quote is open."""
    lines = part.splitlines(keepends=True)
    for count in range(1, len(lines) + 1):
        command = "".join(lines[:count])
        if not command.rstrip("\n").endswith("\\") and command.count("'") % 2 == 0:
            return command, "".join(lines[count:])
    raise AssertionError(f"no end: {part}")


async def test_every_command_of_the_page_answers_what_stands_below_it(database: str, tmp_path: Path):
    found = examples(PAGE.read_text(encoding="utf-8"))
    assert len(found) > 20
    key = await key_of(database)
    async with running(tmp_path, "up", dsn=database, key=key) as service:
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("POSTLEDGER_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "POSTLEDGER_DATABASE": database,
            "API": service.url,
            "KEY": key,
        }
        for example in found:
            if example.command.startswith(GIVEN):
                continue
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", example.command), cwd=tmp_path, env=environment, stdout=PIPE, stderr=PIPE
            )
            out, err = await process.communicate()
            assert process.returncode == 0, (example.command, err.decode())
            assert example.fits(out.decode()), (example.command, out.decode())


def test_the_page_has_an_example_of_each_part():
    text = " ".join(example.command for example in examples(PAGE.read_text(encoding="utf-8")))
    for part in ("/v1/campaigns", "/recipients", "/checklist", "/events/stream", "Idempotency-Key", "If-Match", "keys"):
        assert part in text, part
