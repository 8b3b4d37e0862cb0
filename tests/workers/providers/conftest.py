"""Relays and senders for the provider tests, on the event loop of the standard library and on uvloop."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
import uvloop

from postledger.demo.behaviours import Choice, accept
from postledger.workers.providers.base import Provider
from postledger.workers.providers.registry import make
from tests.workers.providers.relays import Manners, Relay

MakeRelay = Callable[..., Awaitable[Relay]]
MakeProvider = Callable[..., Provider]


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Transports differ between the two loops, and workers run on either."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def relay() -> AsyncIterator[MakeRelay]:
    """Starts relays that stop with the test: `await relay(behaviour, manners)`."""
    async with AsyncExitStack() as running:

        async def start(behaviour: Choice = accept, manners: Manners | Callable[[int], Manners] | None = None) -> Relay:
            chosen = manners if callable(manners) else lambda _: manners or Manners()
            return await running.enter_async_context(Relay(behaviour, chosen))

        yield start


@pytest.fixture
async def provider() -> AsyncIterator[MakeProvider]:
    """Makes providers that are closed with the test: `provider(url, concurrency=4)`."""
    async with AsyncExitStack() as open_ones:

        def start(url: str, concurrency: int = 4) -> Provider:
            made = make(url, concurrency=concurrency)
            open_ones.push_async_callback(made.close)
            return made

        yield start
