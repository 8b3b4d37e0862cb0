"""The link that takes somebody off: who follows it, how, how often, and what comes of it."""

import asyncio
import re
from functools import partial

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.database import Connection
from postledger.http.public.pages import masked
from postledger.http.public.texts import TEXTS, language_of
from postledger.http.public.unsubscribe import Wish, wish_of
from postledger.ledger.queue import ask_permit
from postledger.messages.unsubscribe import make_token
from postledger.projections.verify import verify
from tests.campaigns import claim, enlist
from tests.eventually import eventually
from tests.web.conftest import Answer, Api
from tests.web.public.reading import Mail, mailed

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
ONE_CLICK = "List-Unsubscribe=One-Click"

LEFT = [("Unsubscribed", {"channel": "one_click"})]


async def anonymous(api: Api, method: str, path: str, **options) -> Answer:
    """Without a key, a cookie or a redirect."""
    return await api.call(method, path, key=None, allow_redirects=False, **options)


def multipart(**fields: str) -> aiohttp.MultipartWriter:
    writer = aiohttp.MultipartWriter("form-data")
    for name, value in fields.items():
        writer.append(value).set_content_disposition("form-data", name=name)
    return writer


@pytest.mark.parametrize(
    "options",
    [
        {"data": ONE_CLICK, "headers": FORM},
        {"data": multipart(**{"List-Unsubscribe": "One-Click"})},
        {
            "data": ONE_CLICK + "&extra=1&scope=list",
            "headers": {"Content-Type": FORM["Content-Type"] + "; charset=utf-8"},
        },
        {},
        {"data": b"\xff\x00" * 40_000, "headers": {"Content-Type": "image/png"}},
        {"data": "--x\r\nbroken", "headers": {"Content-Type": "multipart/form-data; boundary=x"}},
        {"data": "not { json", "headers": {"Content-Type": "application/json"}},
    ],
    ids=["form", "multipart", "more", "nothing", "noise", "broken", "json"],
)
async def test_a_post_is_enough(api: Api, db: Connection, options):
    mail = await mailed(api, db)
    answer = await anonymous(api, "POST", mail.path, **options)
    assert answer.status == 200
    assert "Location" not in answer.headers
    assert "Set-Cookie" not in answer.headers
    assert await mail.events() == LEFT
    source = {"source": f"delivery:{mail.campaign}.{mail.delivery}"}
    assert await mail.contact_events() == [("ContactAdded", {}), ("Suppressed", {"reason": "unsubscribed", **source})]


async def test_looking_changes_nothing(api: Api, db: Connection):
    """Scanners follow every link of a mail; some ask for more than GET."""
    mail = await mailed(api, db, list_name="news")
    before = await db.fetchval("SELECT max(position) FROM events")
    for method in ("GET", "HEAD", "GET"):
        assert (await anonymous(api, method, mail.path)).status == 200
    for method in ("OPTIONS", "PROPFIND", "PUT", "DELETE", "PATCH", "TRACE"):
        assert (await anonymous(api, method, mail.path)).status == 405
    prefetch = {"Sec-Purpose": "prefetch;prerender", "Purpose": "prefetch"}
    assert (await anonymous(api, "GET", mail.path + "?scope=all", headers=prefetch)).status == 200
    assert await db.fetchval("SELECT max(position) FROM events") == before
    assert await db.fetchval("SELECT count(*) FROM suppressions") == 0


async def test_again_and_at_once_it_is_the_same_once(api: Api, db: Connection):
    mail = await mailed(api, db)
    answers = await asyncio.gather(
        *(anonymous(api, "POST", mail.path, data=ONE_CLICK, headers=FORM) for _ in range(12))
    )
    answers.append(await anonymous(api, "POST", mail.path))
    assert {answer.status for answer in answers} == {200}
    assert await mail.events() == LEFT
    assert [type_ for type_, _ in await mail.contact_events()] == ["ContactAdded", "Suppressed"]
    assert (await verify(db, None)).equal


async def test_one_list_then_all(api: Api, db: Connection):
    mail = await mailed(api, db, list_name="news <b>")
    other = await db.fetchval("INSERT INTO lists (name) VALUES ('other') RETURNING id")
    address = await db.fetchval("SELECT address_hash FROM recipients WHERE delivery_id = $1", mail.delivery)
    await db.fetchval("SELECT subscribe_hash($1, $2, 'operator')", address, other)

    page = (await anonymous(api, "GET", mail.path)).content.decode()
    assert "news &lt;b&gt;" in page
    assert 'value="list" checked' in page
    first = await anonymous(api, "POST", mail.path, data={"scope": "list", "from": "page"})
    assert 'value="all"' in first.content.decode()
    assert await mail.events() == [("Unsubscribed", {"channel": "page", "list": str(mail.list)})]
    left = "SELECT list_id, subscribed FROM subscriptions ORDER BY list_id"
    assert [tuple(row) for row in await db.fetch(left)] == [(mail.list, False), (other, True)]
    assert await db.fetchval("SELECT count(*) FROM suppressions") == 0

    again = (await anonymous(api, "GET", mail.path)).content.decode()
    assert TEXTS["en"].done in again
    assert 'value="list"' not in again
    second = await anonymous(api, "POST", mail.path, data={"scope": "all", "from": "page"})
    assert "<form" not in second.content.decode()
    assert [tuple(row) for row in await db.fetch(left)] == [(mail.list, False), (other, False)]
    assert (await mail.events())[1:] == [("Unsubscribed", {"channel": "page"})]
    assert "<form" not in (await anonymous(api, "GET", mail.path)).content.decode()
    assert (await verify(db, None)).equal


async def test_one_click_leaves_the_list_alone(api: Api, db: Connection):
    mail = await mailed(api, db, list_name="news")
    await anonymous(api, "POST", mail.path, data=ONE_CLICK, headers=FORM)
    assert await mail.events() == [("Unsubscribed", {"channel": "one_click", "list": str(mail.list)})]
    assert await db.fetchval("SELECT count(*) FROM suppressions") == 0


async def test_nobody_who_left_is_claimed_any_more(api: Api, db: Connection):
    mail = await mailed(api, db)
    await anonymous(api, "POST", mail.path)
    taken = await claim(db, mail.campaign, await enlist(db))
    assert mail.delivery not in [row.delivery_id for row in taken.rows]
    assert (len(taken.rows), taken.skipped) == (2, 1)


async def test_who_leaves_with_the_mail_claimed_already_gets_no_permit(api: Api, db: Connection):
    for number, name in enumerate((None, "news")):
        mail = await mailed(api, db, name=f"c{number}", list_name=name)
        worker = await enlist(db)
        held = await claim(db, mail.campaign, worker)
        ask = partial(ask_permit, db, worker, 1, [held.rows[0].claim_id], [], beat=False, now=0.0, timeout=10)
        before = await ask()
        assert mail.delivery in [row.delivery_id for row in held.rows]
        assert (before.alive, before.suppressed) == (True, frozenset())
        await anonymous(api, "POST", mail.path)
        assert (await ask()).suppressed == {mail.delivery}
        break_off = await db.fetchval("SELECT release_claim($1, $2)", held.rows[0].claim_id, worker)
        assert break_off == len(held.rows)
        await db.execute("DELETE FROM suppressions")


async def test_what_was_said_is_sealed_without_anybody_asking(api: Api, db: Connection):
    mail = await mailed(api, db)
    await anonymous(api, "POST", mail.path)

    async def sealed():
        assert not await db.fetchval("SELECT unsealed()")

    await eventually(sealed)


async def test_it_works_when_campaign_and_person_are_gone(api: Api, db: Connection):
    mail = await mailed(api, db)
    await db.fetchval("SELECT change_campaign($1, 'Cancelled')", mail.campaign)
    await db.execute(
        "UPDATE recipients SET email = NULL, name = NULL, data = NULL WHERE campaign_id = $1", mail.campaign
    )
    assert TEXTS["en"].about_unknown[:10] in (await anonymous(api, "GET", mail.path)).content.decode()
    assert (await anonymous(api, "POST", mail.path)).status == 200
    assert await mail.events() == LEFT


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_wrong_link_meets_a_friendly_page(api: Api, db: Connection, method: str):
    mail = await mailed(api, db)
    nobody = make_token(mail.secret, mail.campaign, 10**9)
    foreign = make_token(bytes(32), mail.campaign, mail.delivery)
    for path in (
        mail.path[:-1],
        mail.path[:-1] + "!",
        mail.path + "x",
        f"/u/{nobody}",
        f"/u/{foreign}",
        "/u/%00",
        "/u/é",
    ):
        answer = await anonymous(api, method, path)
        assert answer.status == 404
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert TEXTS["en"].not_found in answer.content.decode()
    assert await mail.events() == []


async def test_every_character_of_a_token_counts(api: Api, db: Connection):
    mail = await mailed(api, db)
    token = mail.path.removeprefix("/u/")
    for at in range(0, len(token), 5):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        assert (await anonymous(api, "POST", f"/u/{changed}")).status in (404, 429)
    assert await mail.events() == []


async def test_who_guesses_is_slowed_down_and_who_knows_is_not(api: Api, db: Connection):
    mail = await mailed(api, db)
    statuses = [(await anonymous(api, "POST", f"/u/{n}")).status for n in range(40)]
    assert statuses[0] == 404
    assert statuses[-1] == 429
    answer = await anonymous(api, "GET", "/u/x", headers={"Accept-Language": "de"})
    assert int(answer.headers["Retry-After"]) > 0
    assert TEXTS["de"].too_many in answer.content.decode()
    assert (await anonymous(api, "POST", mail.path)).status == 200
    elsewhere = await anonymous(api, "GET", "/u/x", headers={"X-Forwarded-For": "203.0.113.9"})
    assert elsewhere.status == 404


async def test_a_body_that_never_comes_stops_nobody(api: Api, db: Connection, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("postledger.http.public.unsubscribe.BODY_WITHIN", 0.1)
    mail = await mailed(api, db)
    reader, writer = await asyncio.open_connection(*api.url.removeprefix("http://").split(":"))
    writer.write(f"POST {mail.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nList-".encode())
    assert (await asyncio.wait_for(reader.readline(), 10)).startswith(b"HTTP/1.1 200")
    writer.close()
    assert await mail.events() == LEFT


@pytest.mark.parametrize("language", TEXTS)
async def test_in_the_readers_language(api: Api, db: Connection, language: str):
    mail = await mailed(api, db, list_name="news")
    texts, spoken = TEXTS[language], {"Accept-Language": f"xx, {language}-XX;q=0.9, en;q=0.1"}
    page = await anonymous(api, "GET", mail.path, headers=spoken)
    text = page.content.decode()
    assert page.headers["Content-Language"] == language
    assert f'<html lang="{language}">' in text
    assert texts.what in text
    assert "p•••@e•••.org" in text
    assert "Shop &amp; &lt;Co&gt;" in text
    done = (await anonymous(api, "POST", mail.path, headers=spoken)).content.decode()
    assert texts.done in done
    gone = await anonymous(api, "GET", "/u/x", headers=spoken)
    assert texts.not_found in gone.content.decode()


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        *(("", "en"), ("*", "en"), ("ja", "en"), ("de", "de"), ("DE-at", "de"), ("fr-CA,en;q=0.8", "fr")),
        *(("ja,ru;q=0.5,en;q=0.7", "en"), ("es;q=0,fr;q=0.1", "fr"), ("de;q=x", "en"), ("de;q=2", "en")),
        *((";;;,,,=", "en"), ("de," * 5000, "de"), ("de;q=0.5, fr ; q=0.6", "fr")),
    ],
)
def test_the_language_that_weighs_most(accepted: str, language: str):
    assert language_of(accepted) == language


def test_every_language_says_everything():
    for texts in TEXTS.values():
        for name in ("about", "about_unknown"):
            assert "{sender}" in getattr(texts, name)
        assert "{address}" in texts.about
        assert "{list}" in texts.only_list
        assert "{list}" in texts.left_list


@given(st.text(max_size=60), st.binary(max_size=200))
@settings(deadline=None, max_examples=150)
def test_no_body_makes_a_wish_void(content_type: str, body: bytes):
    assert isinstance(wish_of(content_type, body), Wish)
    assert isinstance(wish_of("multipart/form-data; boundary=x", body), Wish)
    assert isinstance(wish_of(FORM["Content-Type"], body), Wish)


@pytest.mark.parametrize(
    ("address", "shown"),
    [("ann@example.com", "a•••@e•••.com"), ("x@mail.example.co.uk", "x•••@m•••.uk"), ("a@b.c", "a•••@b•••.c")],
)
def test_an_address_is_shown_to_who_knows_it(address: str, shown: str):
    assert masked(address) == shown


async def test_a_page_needs_nothing_from_elsewhere(api: Api, db: Connection):
    mail = await mailed(api, db, list_name="news")
    answer = await anonymous(api, "GET", mail.path)
    page = answer.content.decode()
    assert not re.search(r"<script|src=|href=|url\(|\bon\w+=|@import", page)
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "p1@example.org" not in page


async def test_while_the_database_is_away_it_says_so(api: Api, db: Connection, monkeypatch: pytest.MonkeyPatch):
    mail = await mailed(api, db)
    assert (await anonymous(api, "GET", mail.path)).status == 200
    async with held(api):
        monkeypatch.setattr("postledger.http.pool.WAIT", 0.1)
        answer = await anonymous(api, "POST", mail.path)
    assert answer.status == 503
    assert answer.headers["Retry-After"]
    assert TEXTS["en"].trouble in answer.content.decode()
    assert await mail.events() == []


def held(api: Api):
    """Every connection of the service is somebody's."""
    from contextlib import AsyncExitStack, asynccontextmanager

    from postledger.http.keys import POOL

    @asynccontextmanager
    async def holding():
        async with AsyncExitStack() as stack:
            for _ in range(api.app[POOL].size):
                await stack.enter_async_context(api.app[POOL].connection())
            yield

    return holding()


async def test_mail_and_page_agree(api: Api, db: Connection):
    """The link that a mail carries is the one that is served."""
    from postledger.messages.unsubscribe import UnsubscribeLinks

    mail: Mail = await mailed(api, db)
    url = UnsubscribeLinks("https://mail.shop.example", mail.secret).url(mail.campaign, mail.delivery)
    assert url == f"https://mail.shop.example{mail.path}"


async def test_the_front_door_names_documents_that_are_there(api: Api):
    front = await anonymous(api, "GET", "/")
    assert front.status == 200
    for link in re.findall(r'href="([^"]+)"', front.content.decode()):
        assert (await anonymous(api, "GET", f"/{link}")).status == 200, link
