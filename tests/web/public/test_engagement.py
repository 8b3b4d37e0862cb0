"""Opens and clicks: noted, told from machines', led on to the byte; and nothing where nobody asked for it."""

import asyncio
from datetime import timedelta

import pytest

from postledger.database import Connection
from postledger.http.public.desk import DESK
from postledger.http.public.visitors import automatic
from postledger.ledger import readers
from postledger.ledger.readers import Engagement
from postledger.messages.tracking import link_digest
from postledger.projections.verify import verify
from tests.clock import NOON, set_clock, stop_clock
from tests.eventually import eventually
from tests.web.conftest import Answer, Api
from tests.web.public.reading import BASE, Mail, mailed

READER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
TARGET = "https://shop.example/%7Ea?f[0]=a:2&x=1;y#top"


async def visit(mail: Mail, url: str, method: str = "GET", headers=READER) -> Answer:
    return await mail.api.call(
        method,
        url.removeprefix(BASE),
        key=None,
        headers=headers,
        allow_redirects=False,
        skip_auto_headers=["User-Agent"],
    )


def opened(mail: Mail) -> str:
    return mail.links().open_url(mail.campaign, mail.delivery)


def clicked(mail: Mail, target: str = TARGET) -> str:
    return mail.links().click_url(mail.campaign, mail.delivery, target)


async def written(mail: Mail, *expected: tuple[str, dict[str, str]]) -> None:
    async def all_of_it():
        assert await mail.events() == list(expected)

    await eventually(all_of_it)


async def test_a_picture_and_a_link(api: Api, db: Connection):
    mail = await mailed(api, db)
    picture = await visit(mail, opened(mail))
    assert picture.status == 200
    assert picture.headers["Content-Type"] == "image/gif"
    assert picture.content.startswith(b"GIF89a")
    assert picture.headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    link = await visit(mail, clicked(mail))
    assert (link.status, link.headers["Location"]) == (302, TARGET)
    for answer in (picture, link):
        assert "no-store" in answer.headers["Cache-Control"]
        assert "ETag" not in answer.headers
        assert answer.headers["Referrer-Policy"] == "no-referrer"
    await written(mail, ("Opened", {}), ("Clicked", {"link": link_digest(TARGET)}))
    assert (await verify(db, None)).equal

    async def sealed():
        assert not await db.fetchval("SELECT unsealed()")

    await eventually(sealed)


async def test_head_is_nobodys_look(api: Api, db: Connection):
    mail = await mailed(api, db)
    assert (await visit(mail, opened(mail), "HEAD")).status == 200
    head = await visit(mail, clicked(mail), "HEAD")
    assert (head.status, head.headers["Location"]) == (302, TARGET)
    for method in ("POST", "PUT", "OPTIONS"):
        assert (await visit(mail, clicked(mail), method)).status == 405
    await visit(mail, opened(mail))
    await written(mail, ("Opened", {}))


async def test_a_link_is_no_open_redirect(api: Api, db: Connection):
    mail = await mailed(api, db)
    path, _, encoded = clicked(mail).rpartition("/")
    other = clicked(mail, "https://evil.example/").rpartition("/")[2]
    for wrong in (f"{path}/{other}", f"{path}/{encoded[:-2]}", f"{path}x/{encoded}", f"{BASE}/c/x/{other}"):
        answer = await visit(mail, wrong)
        assert answer.status == 404
        assert "Location" not in answer.headers
    assert (await visit(mail, opened(mail)[:-1])).status == 404
    assert await mail.events() == []


async def test_machines_are_marked(api: Api, db: Connection):
    mail = await mailed(api, db)
    await visit(mail, opened(mail), headers={"User-Agent": "Mozilla/5.0"})
    await visit(mail, clicked(mail), headers={"User-Agent": "curl/8.5"})
    await visit(mail, opened(mail))
    await written(
        mail,
        ("Opened", {"automatic": "prefetch"}),
        ("Clicked", {"link": link_digest(TARGET), "automatic": "machine"}),
        ("Opened", {}),
    )


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        (READER, None),
        ({"User-Agent": "Mozilla/5.0 (Windows NT 5.1) GoogleImageProxy (via ggpht.com)"}, None),
        ({"User-Agent": "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15"}, None),
        ({}, "no_agent"),
        ({"User-Agent": " "}, "no_agent"),
        ({"User-Agent": "Mozilla/5.0"}, "prefetch"),
        (READER | {"Sec-Purpose": "prefetch;prerender"}, "prefetch"),
        (READER | {"Purpose": "Prefetch"}, "prefetch"),
        (READER | {"X-Moz": "prefetch"}, "prefetch"),
        ({"User-Agent": "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)"}, "machine"),
        ({"User-Agent": "Mozilla/5.0 (compatible; Barracuda Sentinel)"}, "machine"),
        ({"User-Agent": "Python/3.11 aiohttp/3.10"}, "machine"),
        ({"User-Agent": "Mozilla/5.0 (X11) HeadlessChrome/140.0"}, "machine"),
        ({"User-Agent": "Mozilla/5.0 (X11; CUBOT NOTE 20) Chrome/140.0"}, "machine"),
    ],
)
def test_what_they_say_of_themselves(headers, why):
    assert automatic(headers) == why


@pytest.fixture
async def clock(owner: Connection) -> Connection:
    await stop_clock(owner)
    return owner


async def note(mail: Mail, *seen: tuple[str, str | None, str | None]) -> int:
    looks = [Engagement(mail.campaign, mail.delivery, *one) for one in seen]
    return await readers.note(mail.db, looks, timeout=10)


async def test_the_same_again_is_noted_once_a_minute(api: Api, db: Connection, clock: Connection):
    mail = await mailed(api, db)
    assert await note(mail, ("Opened", None, None), ("Opened", None, None)) == 1
    await set_clock(clock, NOON + timedelta(seconds=59))
    assert await note(mail, ("Opened", None, None)) == 0
    assert await note(mail, ("Opened", None, "prefetch"), ("Clicked", "a", None)) == 2
    await set_clock(clock, NOON + timedelta(seconds=61))
    assert await note(mail, ("Opened", None, None)) == 1


async def test_three_links_within_four_seconds_are_a_scanners(api: Api, db: Connection, clock: Connection):
    mail = await mailed(api, db)
    assert await note(mail, ("Clicked", "a", None), ("Clicked", "b", None), ("Clicked", "c", None)) == 3
    await set_clock(clock, NOON + timedelta(seconds=5))
    assert await note(mail, ("Clicked", "d", None)) == 1
    assert [body.get("automatic") for _, body in await mail.events()] == [None, None, "burst", None]


async def test_a_mail_has_a_hundred_at_most(api: Api, db: Connection):
    mail = await mailed(api, db)
    assert await note(mail, *(("Clicked", str(n), None) for n in range(150))) == 100


async def test_what_was_never_sent_is_not_noted(api: Api, db: Connection):
    mail = await mailed(api, db)
    assert await readers.note(db, [Engagement(mail.campaign, 10**9, "Opened")], timeout=10) == 0


async def test_links_lead_on_while_the_database_is_away(api: Api, db: Connection):
    """Nothing is lost of what fits, and what does not is counted."""
    mail = await mailed(api, db)
    desk = api.app[DESK]
    await visit(mail, opened(mail))  # the secret is known from here on
    await written(mail, ("Opened", {}))
    lost = asyncio.Lock()
    async with desk.recorder.link._turn, lost:  # the recorder's connection is taken
        for number in range(5):
            assert (await visit(mail, clicked(mail, f"https://shop.example/{number}"))).status == 302
        assert desk.recorder.waiting == 5
        desk.recorder.most = 5
        await visit(mail, clicked(mail, "https://shop.example/6"))
        assert desk.recorder.dropped == 1
    await eventually(lambda: _check_empty(desk.recorder))
    assert len(await mail.events("Clicked")) == 5


def _check_empty(recorder) -> None:
    assert recorder.waiting == 0
