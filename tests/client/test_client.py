"""The client against the real service: values in, values out, problems as exceptions, repeats where they are safe."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from postledger.client import (
    Client,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
)
from postledger.client import transport as transport_module
from postledger.http.api.drafts import NewCampaign
from postledger.http.api.senders import NewSender
from postledger.ledger.log_documents import Event, Progress
from tests.web.conftest import Api

LETTER = '<p>Hello {{ name }}</p><p><a href="{{ unsubscribe_url }}">no more</a></p>'
PEOPLE = [{"email": "ann@x.example", "name": "Ann"}, {"email": "bob@x.example", "name": "Bob"}, {"email": "nobody"}]


@pytest.fixture
async def draft(client: Client) -> int:
    await client.create_sender(NewSender(name="nowhere", url="null://", mail_from="Shop <news@shop.example>"))
    new = NewCampaign(name="spring", subject="Hello {{ name }}", html=LETTER, sender="nowhere")
    return (await client.create_campaign(new)).id


async def test_a_campaign_from_draft_to_start(client: Client, draft: int) -> None:
    made = await client.campaign(draft)
    assert (made.name, made.status, made.mail_from) == ("spring", "draft", "Shop <news@shop.example>")
    changed = await client.change_campaign(draft, made.version, {"subject": "Good day {{ name }}", "reply_to": None})
    assert changed.subject == "Good day {{ name }}"
    report = await client.add_recipients(draft, PEOPLE)
    assert (report.accepted, report.invalid, report.lines[0].line) == (2, 1, 3)
    assert (await client.start(draft, expected_audience=2)).status == "sending"
    assert (await client.pause(draft)).status == "paused"
    assert (await client.resume(draft)).status == "sending"
    page = await client.campaigns(limit=1)
    assert [campaign.id for campaign in page.items] == [draft]
    assert (await client.cancel(draft)).status == "cancelled"


async def test_recipients_and_what_happened_to_them(client: Client, draft: int) -> None:
    await client.add_recipients(draft, (person for person in PEOPLE))
    first, second = [one async for one in client.all_recipients(draft)]
    assert (first.email, second.name) == ("ann@x.example", "Bob")
    assert (await client.recipients(draft, status="sent")).items == ()
    delivery = await client.delivery(first.delivery_id)
    assert (delivery.campaign.name, delivery.status) == ("spring", "pending")
    history = await client.history(first.delivery_id)
    assert [event.type for event in history.items] == ["Queued"]
    assert (await client.verify(draft)).equal
    assert (await client.as_of(draft, datetime(2020, 1, 1, tzinfo=UTC))).block is None
    types = [step.event.type async for step in client.replay(draft)]
    assert types.count("Queued") == 2


async def test_a_file_goes_up_as_it_is(client: Client, draft: int, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email;name\nann@x.example;Ann\n")
    report = await client.upload_recipients(draft, tmp_path / "people.csv")
    assert report.accepted == 1


async def test_the_log_in_pages_and_live(client: Client, draft: int) -> None:
    await client.add_recipients(draft, PEOPLE)
    feed = client.feed(campaign=draft)
    first = await anext(aiter(feed))
    assert isinstance(first, Progress)
    page, after = [], None
    while not page or not any(event.type == "RecipientsAdded" for event in page):
        found = await client.events(after=after, campaign=draft, limit=2)
        page += found.items
        after = found.next
        await asyncio.sleep(0 if found.more else 0.02)
    assert all(isinstance(event, Event) and event.campaign_id == draft for event in page)
    live = client.feed(campaign=draft, only="events", after=(await client.events(limit=1)).next)
    seen = [event async for event in first_of(aiter(live), 3)]
    assert [event.position for event in seen] == [event.position for event in page[:3]]
    again = client.feed(campaign=draft, only="events", after=live.last_id)
    rest = [event async for event in first_of(aiter(again), len(page) - 3)]
    assert [event.position for event in rest] == [event.position for event in page[3:]]


async def first_of(messages: AsyncIterator[object], count: int) -> AsyncIterator[Event]:
    async with asyncio.timeout(30):
        for _ in range(count):
            message = await anext(messages)
            assert isinstance(message, Event)
            yield message


async def test_what_the_service_refuses_is_an_exception_with_its_problem(api: Api, client: Client, draft: int) -> None:
    with pytest.raises(NotFoundError) as missing:
        await client.campaign(99)
    assert (missing.value.problem.name, missing.value.problem.status) == ("not-found", 404)
    with pytest.raises(InvalidError) as nobody:
        await client.add_recipients(draft, [{"email": "nobody"}])
    assert nobody.value.problem.more["report"]["invalid"] == 1
    with pytest.raises(ConflictError):
        await client.pause(draft)
    with pytest.raises(ConflictError) as raced:
        await client.start(draft, version=77)
    assert raced.value.problem.status == 412
    async with Client(api.url, await api.new_key("read")) as reader:
        with pytest.raises(ForbiddenError):
            await reader.cancel(draft)
    async with Client(api.url, "nonsense") as stranger:
        with pytest.raises(UnauthorizedError):
            await stranger.campaign(draft)


Answers = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def answering(answers: Answers) -> AsyncIterator[Client]:
    """A client of a server that does as it is told: for what no healthy service does."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answers)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}", "key") as client:
            yield client
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "PAUSE", 0.0)


def busy() -> web.Response:
    headers = {"Retry-After": "0"}
    return web.json_response({"type": "/problems/unavailable", "detail": "away"}, status=503, headers=headers)


async def test_what_passes_is_waited_for_with_the_same_key() -> None:
    seen: list[str | None] = []

    async def answers(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Idempotency-Key"))
        assert await request.read()
        return busy() if len(seen) < 3 else web.json_response({"delivery_id": "7", "new": True, "later": "field"})

    from postledger.http.api.messages import NewMessage

    async with answering(answers) as client:
        accepted = await client.send_message(NewMessage(campaign="welcome", email="ann@x.example"))
    assert accepted.delivery_id == 7
    assert len(seen) == 3
    assert len(set(seen)) == 1
    assert seen[0]


async def test_what_does_not_pass_is_said_in_the_end() -> None:
    count = 0

    async def answers(_: web.Request) -> web.Response:
        nonlocal count
        count += 1
        return busy()

    async with answering(answers) as client:
        with pytest.raises(UnavailableError):
            await client.campaign(1)
    assert count == transport_module.TRIES


async def test_a_lost_answer_is_asked_for_again_unless_it_might_be_done_twice() -> None:
    calls: list[str] = []

    async def answers(request: web.Request) -> web.Response:
        calls.append(request.method)
        await request.read()
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with answering(answers) as client:
        with pytest.raises(UnreachableError):
            await client.campaign(1)
        assert set(calls) == {"GET"}
        assert len(calls) >= transport_module.TRIES  # aiohttp repeats some of them itself
        calls.clear()
        with pytest.raises(UnreachableError):
            await client.change_campaign(1, 1, {"subject": "x"})
        assert calls == ["PATCH"]
        calls.clear()
        with pytest.raises(UnreachableError):
            await client.add_recipients(1, (person for person in PEOPLE))
        assert calls == ["POST"]


async def test_a_page_of_somebody_in_between_is_a_problem_too() -> None:
    async def answers(_: web.Request) -> web.Response:
        return web.Response(status=404, text="<h1>no</h1>", content_type="text/html")

    async with answering(answers) as client:
        with pytest.raises(NotFoundError) as found:
            await client.campaign(1)
    assert found.value.problem.name == "unknown"
