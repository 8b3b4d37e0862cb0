"""The real command, as a process of its own, on a database of the test's own."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from attrs import field, frozen

from postledger.cli import main

LETTER = '<p>Dear {{ name }} from {{ town }},</p><p><a href="{{ unsubscribe_url }}">no more</a></p>'
NOWHERE = "postgresql://user:secret@127.0.0.1:1/none"
"""A server that cannot be reached: who gets another error than that has not asked for one."""


@frozen
class Ran:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        assert self.out, self.err
        return json.loads(self.out)

    @property
    def complaint(self) -> str:
        """The one line on stderr that says what is wrong."""
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("postledger: "), self.err
        return lines[0]


@frozen
class Shell:
    """Runs `postledger` in a folder, with a database in its environment."""

    folder: Path
    database: str
    started: list[asyncio.subprocess.Process] = field(factory=list)

    def environment(self, extra: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("POSTLEDGER_")}
        ours = {"POSTLEDGER_DATABASE": self.database, "POSTLEDGER_URL": "https://mail.shop.example"}
        return kept | ours | {"PYTHONUNBUFFERED": "1"} | dict(extra)

    async def start(
        self, *arguments: str | bytes, stdin: bytes | None = None, **environment: str
    ) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "postledger"),
            *arguments,
            cwd=self.folder,
            env=self.environment(environment),
            stdin=asyncio.subprocess.DEVNULL if stdin is None else asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.started.append(process)
        return process

    async def run(self, *arguments: str | bytes, stdin: bytes | None = None, **environment: str) -> Ran:
        return await self.ended(await self.start(*arguments, stdin=stdin, **environment), stdin)

    async def ended(self, process: asyncio.subprocess.Process, stdin: bytes | None = None) -> Ran:
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        return Ran(process.returncode, out.decode(), err.decode())

    def write(self, name: str, text: str | bytes) -> str:
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    def people(self, count: int, name: str = "people.csv") -> str:
        rows = (f"k{n},p{n}@example.org,Person {n},Ulm\n" for n in range(count))
        return self.write(name, f"key,email,name,town\n{''.join(rows)}")

    def letter_to(self, people: str, **flags: str | bytes) -> list[str | bytes]:
        """The command line of `send`; flags by name with _ for -."""
        whole: dict[str, str | bytes] = {
            "to": people,
            "subject": "Hello {{ name }}",
            "from": "Shop <news@shop.example>",
            "html": "letter.html",
            "via": "null://",
            **flags,
        }
        pairs = ((f"--{name.replace('_', '-')}", value) for name, value in whole.items())
        return ["send", *(part for pair in pairs for part in pair)]

    async def send(self, people: str, *more: str, stdin: bytes | None = None, **flags: str | bytes) -> Ran:
        return await self.run(*self.letter_to(people, **flags), *more, stdin=stdin)

    async def verified(self) -> None:
        """The tables are as the log says."""
        ran = await self.run("audit", "verify", "--json")
        assert ran.code == 0, ran.out
        assert ran.document["equal"]

    def end_all(self) -> None:
        for process in self.started:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)


@pytest.fixture
async def shell(database: str, tmp_path: Path) -> AsyncIterator[Shell]:
    """On a database with the schema."""
    shell = Shell(tmp_path, database)
    shell.write("letter.html", LETTER)
    yield shell
    shell.end_all()


@frozen
class Desk:
    """The same entry point without a process of its own, which is where most of the time would go."""

    shell: Shell
    capture: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def run(self, *arguments: str | bytes, **environment: str) -> Ran:
        for name, value in self.shell.environment(environment).items():
            self.monkeypatch.setenv(name, value)
        self.monkeypatch.chdir(self.shell.folder)
        code = main([os.fsdecode(argument) for argument in arguments])
        said = self.capture.readouterr()
        return Ran(code, said.out, said.err)

    def send(self, people: str, *more: str, **flags: str | bytes) -> Ran:
        return self.run(*self.shell.letter_to(people, **flags), *more)

    def sql(self, statement: str) -> Any:
        """The one value of a statement, as the owner."""
        return asyncio.run(_value(self.shell.database, statement))

    def verified(self) -> None:
        ran = self.run("audit", "verify", "--json")
        assert (ran.code, ran.document["equal"]) == (0, True)


async def _value(dsn: str, statement: str) -> Any:
    conn = await asyncpg.connect(dsn)
    try:
        return await conn.fetchval(statement)
    finally:
        await conn.close()


@pytest.fixture
def desk(database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """On a database with the schema."""
    shell = Shell(tmp_path, database)
    shell.write("letter.html", LETTER)
    return Desk(shell, capsys, monkeypatch)


@pytest.fixture
def offline(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    """On a server that cannot be reached."""
    shell = Shell(tmp_path, NOWHERE)
    shell.write("letter.html", LETTER)
    shell.people(2)
    return Desk(shell, capsys, monkeypatch)
