"""The one way by which this service asks anything of an address that somebody else named."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from attrs import frozen

from ..errors import PostledgerError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

WITHIN = 5.0
"""Seconds for all of it: name, connection, answer."""

MOST = 64 * 1024
"""Bytes of an answer; a certificate has two thousand."""

_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_SIX_TO_FOUR = ipaddress.ip_network("2002::/16")


class NotFetched(PostledgerError):  # noqa: N818 - a refusal, or the other side's failure
    """The address may not be asked, or gave no usable answer; the text holds neither path nor query of it."""


@frozen
class Fetched:
    """An answer: never a redirect."""

    status: int
    body: bytes


def is_public(address: Address) -> bool:
    """Whether an address belongs to the world: none of this machine, a private network or a tunnel there."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(address.ipv4_mapped)
        if address in _SIX_TO_FOUR or address.teredo is not None or any(address in net for net in _NAT64):
            return False  # an IPv4 address inside, which a gateway may lead anywhere
    return address.is_global and not address.is_multicast and not address.is_reserved


class GuardedResolver(AbstractResolver):
    """Names to addresses; one that leads, even by one of its addresses, to where it must not is refused.

    The connection is made to exactly what was looked at: a name that answers differently the second time gains nothing.
    """

    def __init__(self, allowed: Callable[[Address], bool] = is_public) -> None:
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises OSError, which aiohttp takes for a name that does not exist."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys((info[0], str(info[4][0])) for info in found))
        for _, address in addresses:
            _check_address(address.partition("%")[0], self._allowed)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=kind,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


class Fetcher:
    """GETs from addresses that came from outside: https alone, to public addresses, no redirect, no cookie, no proxy.

    `allowed` and `schemes` are for those who test it against a server of their own.
    """

    def __init__(
        self,
        *,
        allowed: Callable[[Address], bool] = is_public,
        schemes: Collection[str] = ("https",),
        within: float = WITHIN,
        most: int = MOST,
    ) -> None:
        self._allowed = allowed
        self._schemes = schemes
        self._most = most
        connector = aiohttp.TCPConnector(resolver=GuardedResolver(allowed), use_dns_cache=False, limit=8)
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=within),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def fetch(self, url: str, *, hosts: Callable[[str], bool] = lambda _: True) -> Fetched:
        """One GET. `hosts` says of a host name, in lower case, whether it is one that may be asked.

        Raises NotFetched.
        """
        self._check(url, hosts)
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status in range(300, 400):
                    raise NotFetched(f"{_host(url)} sends us elsewhere, and redirects are not followed")
                body = await answer.content.read(self._most + 1)
                while len(body) <= self._most and (more := await answer.content.read(self._most + 1 - len(body))):
                    body += more
        except TimeoutError as error:
            raise NotFetched(f"{_host(url)} did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            refusal = _refusal(error)
            raise NotFetched(refusal or f"{_host(url)} cannot be asked ({type(error).__name__})") from error
        if len(body) > self._most:
            raise NotFetched(f"{_host(url)} answered with more than {self._most} bytes")
        return Fetched(answer.status, body)

    async def close(self) -> None:
        """Ends its connections."""
        await self._session.close()

    def _check(self, url: str, hosts: Callable[[str], bool]) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise NotFetched("not an address that can be fetched") from None
        if parts.scheme not in self._schemes or not host:
            raise NotFetched(f"only {' or '.join(self._schemes)} addresses are fetched")
        if parts.username is not None or parts.password is not None or "@" in parts.netloc:
            raise NotFetched("an address with a user or a password in it is not fetched")
        if not url.isascii() or not url.isprintable() or "\\" in url or " " in url:
            raise NotFetched("an address with unusual characters is not fetched")
        if port is not None and self._schemes == ("https",) and port != 443:
            raise NotFetched("only the usual port is asked")
        if not hosts(host.lower()):
            raise NotFetched(f"{host.lower()[:100]} is not a host that may be asked")
        # An address in place of a name is never resolved, so nobody else would look at it.
        try:
            literal = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return
        if not self._allowed(literal):
            raise NotFetched(NOT_PUBLIC)


@asynccontextmanager
async def fetching() -> AsyncIterator[Fetcher]:
    """A fetcher for the time of a context."""
    fetcher = Fetcher()
    try:
        yield fetcher
    finally:
        await fetcher.close()


NOT_PUBLIC = "the name leads to an address that is not public"


class _RefusedError(OSError):
    """By the resolver: in a class of its own, since aiohttp wraps what comes out of one."""


def _check_address(address: str, allowed: Callable[[Address], bool]) -> None:
    if not allowed(ipaddress.ip_address(address)):
        raise _RefusedError(NOT_PUBLIC)


def _refusal(error: BaseException | None) -> str | None:
    while error is not None:
        if isinstance(error, _RefusedError):
            return NOT_PUBLIC
        error = error.__cause__ or error.__context__
    return None


def _host(url: str) -> str:
    return (urlsplit(url).hostname or "it")[:100]
