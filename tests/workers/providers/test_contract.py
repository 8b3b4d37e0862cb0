"""What every provider promises, whatever carries the mail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from attrs import frozen

from postledger.demo.catcher import Catcher
from postledger.workers.providers.base import Envelope, Provider, Withheld
from postledger.workers.providers.registry import make
from postledger.workers.replies import classify
from tests.workers.providers.mails import Permit, envelope
from tests.workers.providers.relays import AUTHORITY, Relay, stranger


@frozen
class Case:
    """A provider and what has come out at its other end; `contents` None: nothing can be seen there."""

    provider: Provider
    name: str
    batch: int
    renders: bool
    contents: Callable[[], list[bytes]] | None


async def smtp_case(stack: AsyncExitStack, folder: Path) -> Case:
    relay = await stack.enter_async_context(Relay())
    return Case(make(relay.url, concurrency=5), "smtp", 1, True, lambda: [mail.content for mail in relay.mails])


async def smtps_case(stack: AsyncExitStack, folder: Path) -> Case:
    taken = await stack.enter_async_context(stranger(implicit_tls=True))
    provider = make(f"smtps://localhost:{taken.port}?ca={AUTHORITY}", concurrency=5)
    return Case(provider, "smtp", 1, True, lambda: [content for _, content in taken.mails])


async def file_case(stack: AsyncExitStack, folder: Path) -> Case:
    provider = make(f"file://{folder}/letters", concurrency=5)
    return Case(provider, "file", 1, True, lambda: [path.read_bytes() for path in sorted(folder.glob("letters/*"))])


async def null_case(stack: AsyncExitStack, folder: Path) -> Case:
    return Case(make("null://", concurrency=5), "null", 500, False, None)


async def rendering_null_case(stack: AsyncExitStack, folder: Path) -> Case:
    return Case(make("null://?render=1", concurrency=5), "null", 1, True, None)


CASES = [smtp_case, smtps_case, file_case, null_case, rendering_null_case]


@pytest.fixture(params=CASES, ids=[case.__name__.removesuffix("_case") for case in CASES])
async def case(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Case]:
    async with AsyncExitStack() as stack:
        made = await request.param(stack, tmp_path)
        await made.provider.open()
        yield made
        await made.provider.close()


def came_out(case: Case, *mails: Envelope) -> None:
    if case.contents is not None:
        assert sorted(case.contents()) == sorted(mail.content for mail in mails)


async def test_says_what_it_is(case: Case):
    assert (case.provider.name, case.provider.batch, case.provider.renders) == (case.name, case.batch, case.renders)


async def test_a_mail_that_was_taken(case: Case):
    permit = Permit()
    reply = await case.provider.send(envelope(), permit)
    assert (reply.stage, reply.code, classify(reply).accepted) == ("eod", 250, True)
    assert permit.asked == 1
    came_out(case, envelope())


async def test_nothing_comes_out_before_the_permit(case: Case):
    seen: list[int] = []

    async def begin() -> None:
        seen.append(len(list(case.contents() if case.contents else [])))

    await case.provider.send(envelope(), begin)
    assert seen == [0] or case.name == "file"
    came_out(case, envelope())


async def test_withheld_passes_and_nothing_comes_out(case: Case):
    for reason in ("paused", "suppressed"):
        with pytest.raises(Withheld) as withheld:
            await case.provider.send(envelope(), Permit(reason=reason))
        assert withheld.value.reason == reason
    came_out(case)
    assert classify(await case.provider.send(envelope(), Permit())).accepted
    came_out(case, envelope())


async def test_a_failing_permit_passes_too(case: Case):
    async def begin() -> None:
        raise LookupError("the claim is not mine")

    with pytest.raises(LookupError, match="the claim is not mine"):
        await case.provider.send(envelope(), begin)
    came_out(case)


async def test_cancelled_while_the_permit_is_awaited(case: Case):
    asked = asyncio.Event()

    async def begin() -> None:
        asked.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(case.provider.send(envelope(), begin))
    await asked.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    came_out(case)
    assert classify(await case.provider.send(envelope(), Permit())).accepted


async def test_many_at_once(case: Case):
    mails = [envelope(f"r{n}@example.net", f"Dear {n}\r\n".encode(), f"7.{n}") for n in range(40)]
    replies = await asyncio.gather(*(case.provider.send(mail, Permit()) for mail in mails))
    assert all(classify(reply).accepted for reply in replies)
    came_out(case, *mails)


async def test_opened_again(case: Case):
    await case.provider.open()
    assert classify(await case.provider.send(envelope(), Permit())).accepted


async def test_closed_without_ever_being_used(tmp_path: Path):
    async with Catcher() as catcher:
        for url in (catcher.url, f"file://{tmp_path}", "null://"):
            await make(url, concurrency=1).close()
