"""Ten processes bring one database to this version, and it happens once."""

import asyncio
import sys
from asyncio.subprocess import PIPE

import pytest

from postledger.database import SCHEMA_VERSION, Database
from tests.database import version_1

PROCESSES = 10
MIGRATE = "import asyncio, sys; from postledger.database import migrate; print(asyncio.run(migrate(sys.argv[1])))"


async def migrated(dsn: str) -> int:
    """As a process of its own does it; the version it ends with."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-P", "-c", MIGRATE, dsn, stdout=PIPE, stderr=PIPE)
    told, complaint = await process.communicate()
    assert process.returncode == 0, complaint.decode()
    return int(told.splitlines()[-1])


@pytest.mark.parametrize("installed", [False, True], ids=["empty", "version 1"])
async def test_ten_processes_at_once(empty_database: str, installed: bool) -> None:
    if installed:
        await version_1.install(empty_database, populated=True)
    versions = await asyncio.gather(*(migrated(empty_database) for _ in range(PROCESSES)))
    assert versions == [SCHEMA_VERSION] * PROCESSES
    async with Database(empty_database).connection() as conn:
        told = await conn.fetch("SELECT body ->> 'version' FROM events WHERE type = 'Migrated' ORDER BY version")
        steps = range(1, SCHEMA_VERSION + 1) if installed else [SCHEMA_VERSION]
        assert [int(row[0]) for row in told] == [*steps]
        assert await conn.fetchval("SELECT count(*) FROM secrets") == 2
