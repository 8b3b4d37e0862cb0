"""Campaigns for the tests of the write path."""

import pytest

from postledger.database import Connection, Database
from tests.workers.mailing import Mailing


@pytest.fixture
async def mailing(database: str, app: Connection) -> Mailing:
    """Campaigns on a database of the test's own."""
    return Mailing(Database(database), app)
