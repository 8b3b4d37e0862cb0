"""A client of a running service."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from postledger.client import Client
from tests.web.conftest import Api, open_api


@pytest.fixture
async def api(database: str) -> AsyncIterator[Api]:
    """A running service with a key of all scopes."""
    async with open_api(database) as running:
        yield running


@pytest.fixture
async def client(api: Api) -> AsyncIterator[Client]:
    """A client of it with that key."""
    async with Client(api.url, api.key) as opened:
        yield opened
