"""One call over HTTP: sent, sent again where that is safe, and its answer read or its problem raised."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import uuid4

import aiohttp
import attrs
import orjson
from attrs import field, frozen

from ..ledger.public import name_of, read_answer, write
from .errors import ApiError, Problem, UnreachableError, error_of

T = TypeVar("T")

TRIES = 4
PAUSE = 0.2
"""Seconds before the second try; each later one waits twice as long, unless the service says how long."""

LONGEST = 10.0

_PASSES = ("unavailable", "too-many-requests", "in-progress")
"""Problems that say that nothing was done, and that it passes."""


@frozen
class Call:
    """What is asked. `body` makes it anew for each try; None: it can be sent once."""

    method: str
    path: str
    query: Mapping[str, str] = field(factory=dict)
    headers: Mapping[str, str] = field(factory=dict)
    body: Callable[[], Any] | None = None
    repeatable: bool = False
    """Asked twice it does no more than once: reading, or with an Idempotency-Key."""


class Transport:
    """Where the service is and as whom we ask."""

    def __init__(self, url: str, key: str, *, timeout: float = 60.0, tries: int = TRIES) -> None:
        self.url = url.rstrip("/")
        self._tries = tries
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {key}", "User-Agent": "postledger-client"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=1 << 20,
        )

    async def close(self) -> None:
        """Ends its connections."""
        await self._session.close()

    async def ask(self, call: Call, answer: type[T]) -> T:
        """The answer as a value. Raises ApiError or UnreachableError."""
        return read_answer(orjson.loads(await self.fetch(call)), answer)

    async def fetch(self, call: Call) -> bytes:
        """The answer's body. Raises the same."""
        for attempt in range(1, self._tries + 1):
            try:
                async with self.open(call) as response:
                    return await response.read()
            except (ApiError, UnreachableError) as error:
                if attempt == self._tries or not _may_repeat(call, error):
                    raise
                await asyncio.sleep(_pause(attempt, error))
        raise AssertionError("a try returns or raises")

    @asynccontextmanager
    async def open(self, call: Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """An answer that is read by the caller, piece by piece; tried once. Raises the same, then and in the block."""
        try:
            async with self._session.request(
                call.method,
                self.url + call.path,
                params=call.query,
                headers=call.headers,
                data=None if call.body is None else call.body(),
                allow_redirects=False,
            ) as response:
                if response.status >= 300:
                    raise await _problem(response)
                yield response
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(f"{call.method} {call.path}: {str(error) or type(error).__name__}") from error


def json_call(
    method: str, path: str, value: Any = None, *, version: int | None = None, once: bool = False, **query: Any
) -> Call:
    """A call with a JSON body or none. A POST gets an Idempotency-Key, so that it may be repeated.

    `version` goes into If-Match; `once`: asked twice it would be done twice.
    """
    headers: dict[str, str] = {}
    content = None if value is None else orjson.dumps(body_of(value))
    if content is not None:
        headers["Content-Type"] = "application/json"
    if method == "POST":
        headers["Idempotency-Key"] = str(uuid4())
    if version is not None:
        headers["If-Match"] = f'"{version}"'
    given = {name: str(one) for name, one in query.items() if one is not None}
    return Call(
        method,
        path,
        given,
        headers,
        None if content is None else lambda: content,
        repeatable=method in ("GET", "POST") and not once,
    )


def upload_call(path: str, body: Callable[[], Any], content_type: str, *, repeatable: bool) -> Call:
    """A body of any size, made by `body` for each try."""
    headers = {"Content-Type": content_type, "Idempotency-Key": str(uuid4())}
    return Call("POST", path, {}, headers, body, repeatable=repeatable)


def body_of(value: Any) -> Any:
    """What was said: fields that are as they are by default are left out."""
    if not attrs.has(type(value)):
        return write(value)
    said = [one for one in attrs.fields(type(value)) if getattr(value, one.name) != _default(one)]
    written = write(value)
    return {name_of(one): written[name_of(one)] for one in said}


def _default(attribute: attrs.Attribute[Any]) -> Any:
    factory = getattr(attribute.default, "factory", None)
    return attribute.default if factory is None else factory()


def _may_repeat(call: Call, error: ApiError | UnreachableError) -> bool:
    if isinstance(error, ApiError):
        return error.problem.name in _PASSES
    return call.repeatable


def _pause(attempt: int, error: ApiError | UnreachableError) -> float:
    asked = error.retry_after if isinstance(error, ApiError) else None
    return min(asked if asked is not None else PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), LONGEST)


async def _problem(response: aiohttp.ClientResponse) -> ApiError:
    content = await response.read()
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = None
    found = Problem.of(response.status, document if isinstance(document, dict) else {})
    return error_of(found, _seconds(response.headers.get("Retry-After")))


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
