"""A database carried to another place by a dump."""

import asyncio
from asyncio.subprocess import PIPE
from pathlib import Path


async def carry(bin_: Path, source: str, target: str) -> None:
    """As people do it: pg_dump --no-comments | psql, into a database that is empty."""
    dump = await asyncio.create_subprocess_exec(bin_ / "pg_dump", "--no-comments", source, stdout=PIPE, stderr=PIPE)
    script, complaints = await dump.communicate()
    assert dump.returncode == 0, complaints
    options = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null")
    psql = await asyncio.create_subprocess_exec(bin_ / "psql", *options, target, stdin=PIPE, stderr=PIPE)
    _, complaints = await psql.communicate(script)
    assert (psql.returncode, complaints) == (0, b"")
