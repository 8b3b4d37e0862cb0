"""Limits of size, time and rate; headers of every answer; and what is never said."""

import asyncio
import io
import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE

import orjson
import pytest
import structlog

from postledger.database import Connection
from postledger.http.feed.context import HUB
from postledger.http.guards import GUARDS
from postledger.http.keys import TABLE
from tests.web.conftest import Answer, Api
from tests.web.public.reading import mailed

ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
    "Server": "postledger",
}


def check_headers(answer: Answer) -> None:
    for name, value in ALWAYS.items():
        assert answer.headers.getall(name) == [value], name
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "Set-Cookie" not in answer.headers


async def test_every_route_carries_them_whatever_it_answers(api: Api, db: Connection):
    """With a key and without; things that are there and things that are not."""
    seen = set()
    for route in api.app[TABLE].values():
        if "stream" in route.path:
            continue
        path = re.sub(r"\{[^}]*\}", "1", route.path)
        for key in (None, ""):
            answer = await api.call(route.method, path, key=key, allow_redirects=False)
            check_headers(answer)
            seen.add(answer.status // 100)
        api.app[GUARDS].strangers._levels.clear()
    assert {2, 4} <= seen


async def test_streams_carry_them_too(api: Api):
    async with api.session.get(f"{api.url}/v1/events/stream", headers={"Authorization": f"Bearer {api.key}"}) as stream:
        assert stream.status == 200
        check_headers(Answer(stream.status, stream.headers, b""))
    assert HUB in api.app


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/../etc/passwd", "/%2e%2e/x", "/u", "/" + "x" * 3000])
async def test_what_is_not_there_carries_them(api: Api, path: str):
    answer = await api.get(path, key=None)
    assert answer.status in (401, 404)
    check_headers(answer)


async def test_a_page_may_use_its_own_style_and_send_its_own_form(api: Api, db: Connection):
    mail = await mailed(api, db)
    answer = await api.get(mail.path, key=None)
    check_headers(answer)
    assert "form-action 'self'" in answer.headers["Content-Security-Policy"]
    assert re.search(r"style-src 'sha256-[\w+/=]+'", answer.headers["Content-Security-Policy"])


async def test_a_body_has_a_size(api: Api):
    body = io.BytesIO(b'{"name": "' + b"x" * (5 << 20) + b'"}')
    answer = await api.call("POST", "/v1/campaigns", data=body, headers={"Content-Type": "application/json"})
    assert answer.problem == (413, "too-large")


async def test_a_body_has_a_time(api: Api, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("postledger.http.guards.BODY_WITHIN", 0.1)
    reader, writer = await asyncio.open_connection(*api.url.removeprefix("http://").split(":"))
    head = f"POST /v1/campaigns HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.key}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert b" 408 " in await asyncio.wait_for(reader.readline(), 10)
    writer.close()


async def test_a_key_has_a_rate(api: Api):
    keys = api.app[GUARDS].keys
    keys.rate, keys.burst = 0.5, 3
    other = await api.new_key("read")
    answers = [await api.get("/v1/campaigns") for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].problem == (429, "too-many-requests")
    assert answers[-1].headers["Retry-After"] == "2"
    check_headers(answers[-1])
    assert (await api.get("/v1/campaigns", key=other)).status == 200


async def test_who_guesses_keys_is_slowed_down(api: Api):
    assert (await api.get("/v1/campaigns")).status == 200
    statuses = [(await api.get("/v1/campaigns", key=f"plk_1_{n}")).status for n in range(30)]
    assert statuses[:20] == [401] * 20
    assert set(statuses[20:]) == {429}
    assert (await api.get("/v1/campaigns", key="plk_1_0")).status == 401  # the same again is no guess
    assert (await api.get("/v1/campaigns", key=await api.new_key("read"))).status == 429  # nobody knows it yet
    assert (await api.get("/v1/campaigns")).status == 200
    elsewhere = {"X-Forwarded-For": "203.0.113.9"}
    assert (await api.get("/v1/campaigns", headers=elsewhere)).status == 200
    assert (await api.get("/healthz", key=None)).status == 200


@pytest.fixture
def said() -> Iterator[list[str]]:
    """Everything that is logged, as text, at every level."""
    lines: list[str] = []

    def keep(_: object, __: str, event: dict[str, object]) -> dict[str, object]:
        lines.append(repr(event))
        raise structlog.DropEvent

    structlog.configure(
        processors=[structlog.processors.format_exc_info, keep],
        wrapper_class=structlog.make_filtering_bound_logger(logging.NOTSET),
        cache_logger_on_first_use=False,
    )
    handler = logging.Handler(logging.NOTSET)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield lines
    logging.getLogger().removeHandler(handler)
    structlog.reset_defaults()


SECRET_ADDRESS = "ann.secret@private.example"


async def test_no_log_line_and_no_error_tells_an_address_or_a_secret(api: Api, db: Connection, said: list[str]):
    """Requests that go well and that go wrong, with addresses, tokens and keys in every place that they can be in."""
    mail = await mailed(api, db, list_name="news")
    answers = [
        await api.post("/v1/contacts", {"email": SECRET_ADDRESS, "nonsense": SECRET_ADDRESS}),
        await api.post("/v1/suppressions", {"email": SECRET_ADDRESS, "reason": 7}),
        await api.get("/v1/campaigns?cursor=damaged"),
        await api.get("/v1/campaigns", key="plk_1_wrong-key-of-somebody"),
        await api.post("/v1/senders", {"name": "x", "url": "smtp://user:hidden-password@relay.example:x"}),
        await api.post("/webhooks/mailgun", {"signature": {}, "event-data": {"recipient": SECRET_ADDRESS}}, key=None),
        await api.get("/u/damaged-token-of-somebody", key=None),
        await api.post(mail.path, key=None),
        await api.get(
            mail.links().open_url(mail.campaign, mail.delivery).removeprefix("https://mail.shop.example"), key=None
        ),
        await api.call("POST", "/v1/campaigns", data=b"{broken", headers={"Content-Type": "application/json"}),
    ]
    assert {answer.status // 100 for answer in answers} >= {2, 4}
    assert not [answer for answer in answers if answer.status == 500]
    tokens = (
        mail.path.removeprefix("/u/"),
        api.key,
        "plk_1_wrong-key",
        "damaged-token",
        "hidden-password",
        SECRET_ADDRESS,
    )
    everything = "\n".join(said)
    for secret in (*tokens, "p1@example.org"):
        assert secret not in everything
    for answer in answers:
        for secret in ("hidden-password", api.key, "p1@example.org"):
            assert secret.encode() not in answer.content
            assert secret not in str(answer.headers)


RUN = """
import sys
from postledger.cli import main
sys.exit(main(sys.argv[1:]))
"""


async def test_the_logs_of_a_whole_run_tell_neither(database: str, tmp_path: Path, api: Api, db: Connection):
    """`send` through files and `work`, verbosely: nobody's address, no password of the database or of a sender."""
    people = tmp_path / "people.csv"
    people.write_text(f"email,name\n{SECRET_ADDRESS},Ann Geheim\nbob.hidden@private.example,Bob\nbroken,X\n")
    letter = tmp_path / "letter.html"
    letter.write_text('<p>Hello {{ name }} <a href="https://shop.example/?u={{ email }}">x</a>')
    command = [
        *(sys.executable, "-c", RUN, "send", "--verbose", "--database", database, "--url", "https://mail.shop.example"),
        *("--to", str(people), "--html", str(letter), "--subject", "Hi", "--from", "News <news@shop.example>"),
        *("--via", f"file://{tmp_path}/out", "--name", "spring", "--track", "opens,clicks", "--json"),
    ]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, err
    assert orjson.loads(out)["counts"]["sent"] == 2
    for secret in (SECRET_ADDRESS, "bob.hidden", "Ann Geheim"):
        assert secret not in err.decode()
    mails = "".join(path.read_text() for path in (tmp_path / "out").rglob("*.eml"))
    assert "https://mail.shop.example/c/" in mails.replace("=\n", "")
