"""One transaction per request that changes something, with its Idempotency-Key in it."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable

import asyncpg
import orjson
from aiohttp import web
from attrs import frozen

from ..database import Blocks, Connection, fetch_one
from ..errors import UnavailableError
from .keys import CALLER, POOL, SEALER
from .problems import AGAIN_IN, Problem

sql = Blocks("postledger.http", "effects.sql")

Act = Callable[[Connection], Awaitable[web.Response]]
"""Changes something and says what; it may be called anew, in another transaction, where the first was undone."""

HEADER = "Idempotency-Key"
TRIES = 3
KEPT_HEADERS = ("ETag", "Location")

_WRITTEN = re.compile("[!-~]{1,200}")


@frozen
class Asked:
    """A request that may come again: whose key, which Idempotency-Key, and the digest of what is asked."""

    api_key: int
    key: str
    request: bytes


async def effect(request: web.Request, act: Act) -> web.Response:
    """Runs `act` in one transaction and answers what it answers.

    With an Idempotency-Key the answer is written down in that same transaction: there is no moment in which what was
    done is there and its key is not. The same request again gets the same answer, and nothing is done. Raises Problem:
    `key-reused` for another request with this key, `in-progress` while the first one is under way. What `act` raises
    undoes everything, and leaves the key free.
    """
    asked = await asked_by(request)
    try:
        for _ in range(TRIES - 1):
            try:
                return await _once(request, asked, act)
            except _Undone:
                await asyncio.sleep(0)
        return await _once(request, asked, act)
    finally:
        request.app[SEALER].note()  # also where it is not known whether it was committed


async def asked_by(request: web.Request, body: bytes | None = None) -> Asked | None:
    """What the request's Idempotency-Key stands for; None: it has none. `body`: the digest of one that was streamed."""
    written = request.headers.get(HEADER)
    if written is None:
        return None
    if not _WRITTEN.fullmatch(written):
        raise Problem(
            "malformed",
            f"{HEADER} is not acceptable",
            field=HEADER,
            remedy="give 1 to 200 characters of printable ASCII without spaces, a UUID say",
        )
    digest = hashlib.sha256(f"{request.method} {request.path_qs}\n".encode(errors="surrogateescape"))
    digest.update(body if body is not None else _canonical(await request.read()))
    return Asked(request[CALLER].key_id, written, digest.digest())


async def recall(conn: Connection, asked: Asked) -> web.Response | None:
    """The answer that was given, or None: then this transaction has the key for itself. Raises Problem."""
    return replayed(asked, await fetch_one(conn, sql.recall, asked.api_key, asked.key))


def replayed(asked: Asked, row: asyncpg.Record) -> web.Response | None:
    """What a row of recall_answer() means. Raises Problem."""
    if row["busy"]:
        raise Problem(
            "in-progress",
            "a request with this Idempotency-Key is under way",
            field=HEADER,
            remedy="wait for its answer, or ask again",
            headers={"Retry-After": AGAIN_IN},
        )
    if row["request"] is None:
        return None
    if row["request"] != asked.request:
        raise Problem(
            "key-reused",
            "this Idempotency-Key was used for another request",
            field=HEADER,
            remedy="use a new key for each thing to be done",
        )
    headers = {**row["headers"], "Idempotent-Replayed": "true"}
    return web.Response(status=row["status"], body=row["answer"], headers=headers)


async def remember(conn: Connection, asked: Asked, answer: web.Response) -> None:
    """Writes the answer down, in the transaction of what it answers; forgets a few that have expired."""
    headers = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
    headers["Content-Type"] = answer.headers.get("Content-Type", "application/json")
    body = answer.body if isinstance(answer.body, bytes) else b""
    await conn.execute(sql.remember, asked.api_key, asked.key, asked.request, answer.status, headers, body)


async def _once(request: web.Request, asked: Asked | None, act: Act) -> web.Response:
    async with request.app[POOL].transaction() as conn:
        await conn.execute(sql.be_short)
        try:
            return await _acted(conn, asked, act)
        except asyncpg.LockNotAvailableError:
            raise Problem(
                "unavailable",
                "somebody else is at it: people are being added, or another command is under way",
                remedy="try again",
                headers={"Retry-After": AGAIN_IN},
            ) from None
        except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
            raise _Undone from error


class _Undone(UnavailableError):  # noqa: N818 - an event in the life of a transaction
    """The server took the transaction back, for no fault of its own: it may be done again."""


async def _acted(conn: Connection, asked: Asked | None, act: Act) -> web.Response:
    if asked is None:
        return await act(conn)
    if (given := await recall(conn, asked)) is not None:
        return given
    answer = await act(conn)
    await remember(conn, asked, answer)
    return answer


def _canonical(body: bytes) -> bytes:
    """The same JSON is the same request, however it is spaced and ordered."""
    try:
        return orjson.dumps(orjson.loads(body), option=orjson.OPT_SORT_KEYS)
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return body
