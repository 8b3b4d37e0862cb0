"""Addresses from outside: what is asked, and what never is."""

import ipaddress
import socket
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from postledger.http.fetching import Fetcher, GuardedResolver, NotFetched, is_public

PRIVATE = [
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
    *("::1", "::", "fe80::1", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254"),
    *("64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_of_the_world_is_not_public(address: str):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700:4700::1111", "::ffff:8.8.8.8"])
def test_what_is_of_the_world_is(address: str):
    assert is_public(ipaddress.ip_address(address))


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    made = Fetcher()
    yield made
    await made.close()


@pytest.mark.parametrize(
    "url",
    [
        *(f"https://[{one}]/x" if ":" in one else f"https://{one}/x" for one in PRIVATE),
        "http://example.com/",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "https://user:password@example.com/",
        "https://example.com@127.0.0.1/",
        "https://example.com\\@127.0.0.1/",
        "https://example.com:22/",
        "https://ex ample.com/",
        "https://[::1/",
        "https:///path",
        "//example.com/",
        "https://localhost/",
        # The ways to write 127.0.0.1 that resolvers take, and parsers of addresses do not.
        *("https://2130706433/", "https://0x7f000001/", "https://127.1/", "https://0177.0.0.1/"),
    ],
)
async def test_refused_before_a_connection(fetcher: Fetcher, url: str):
    with pytest.raises(NotFetched) as refused:
        await fetcher.fetch(url)
    assert "password" not in str(refused.value).replace("a password in it", "")


async def test_a_host_that_may_not_be_asked(fetcher: Fetcher):
    with pytest.raises(NotFetched, match=r"example\.com is not a host"):
        await fetcher.fetch("https://EXAMPLE.com/secret", hosts=lambda host: host == "sns.example.com")


class Server:
    """One on this machine: what it was asked, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        match request.path:
            case "/moved":
                raise web.HTTPFound("/there")
            case "/long":
                return web.Response(body=b"x" * 100_000)
            case _:
                assert "Cookie" not in request.headers
                return web.Response(body=b"here", headers={"Set-Cookie": "a=b"})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """It shadows the PostgreSQL of the session, which nobody here needs."""
    made = Server()
    app = web.Application()
    app.router.add_get("/{tail:.*}", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = socket.create_server(("127.0.0.1", 0))
    made.port = listening.getsockname()[1]
    await web.SockSite(runner, listening).start()
    yield made
    await runner.cleanup()


@pytest.fixture
async def near(server: Server) -> AsyncIterator[Fetcher]:
    """One that may ask this machine."""
    made = Fetcher(allowed=lambda address: address.is_loopback, schemes=("http",), most=1000)
    yield made
    await made.close()


async def test_an_answer(near: Fetcher, server: Server):
    for _ in range(2):
        got = await near.fetch(f"http://127.0.0.1:{server.port}/")
        assert (got.status, got.body) == (200, b"here")


async def test_redirects_are_not_followed(near: Fetcher, server: Server):
    with pytest.raises(NotFetched, match="redirects"):
        await near.fetch(f"http://127.0.0.1:{server.port}/moved")
    assert server.asked == ["/moved"]


async def test_an_answer_has_a_limit(near: Fetcher, server: Server):
    with pytest.raises(NotFetched, match="more than 1000 bytes"):
        await near.fetch(f"http://127.0.0.1:{server.port}/long")


async def test_a_name_that_leads_here_is_never_connected_to(server: Server):
    """After resolution, not before: the name itself says nothing."""
    guarded = Fetcher(schemes=("http",))
    with pytest.raises(NotFetched, match="not public"):
        await guarded.fetch(f"http://localhost:{server.port}/")
    assert server.asked == []
    await guarded.close()


async def test_one_bad_address_of_a_name_is_enough():
    resolver = GuardedResolver(lambda address: address == ipaddress.ip_address("::1"))
    with pytest.raises(OSError, match="not public"):
        await resolver.resolve("127.0.0.1", 443)


async def test_silence_ends(near: Fetcher):
    listening = socket.create_server(("127.0.0.1", 0))
    slow = Fetcher(allowed=lambda address: address.is_loopback, schemes=("http",), within=0.2)
    with pytest.raises(NotFetched, match="in time"):
        await slow.fetch(f"http://127.0.0.1:{listening.getsockname()[1]}/")
    await slow.close()
    listening.close()
