"""Writes many messages down in one transaction, and answers each when that has been committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

import asyncpg
import structlog
from aiohttp import web
from attrs import field, frozen

from ..database import Blocks, Connection, first_line, translate
from ..errors import PostledgerError, UnavailableError
from ..ledger import messages
from ..ledger.messages import Message
from ..ledger.public import Id
from ..workers.link import Link, LinkLost
from ..workers.loops import forever
from .effects import Asked, replayed
from .keys import DATABASE, POOL, SEALER
from .pool import Pool
from .problems import AGAIN_IN, Problem
from .waiting import Waiting
from .waking import WAKER
from .wire import answer

log = structlog.get_logger(__name__)

sql = Blocks("postledger.http", "mailroom.sql")

MESSAGES = 100
"""In one transaction, which then takes some hundredths of a second."""

MOST = 5_000
"""Messages that wait: beyond that who comes is told to come again."""

WITHIN = 15.0
"""Seconds for one, waiting included."""

TOGETHER_WAITS, ALONE_WAITS = "250ms", "3s"
"""For a lock, as where an application is just writing the same key: nobody else has to wait for that."""


@frozen
class Accepted:
    """The message is written down: it will be sent, or its history says why not."""

    delivery_id: Id
    new: bool
    """False: this key was written before, and `delivery_id` is that message's."""


@frozen(eq=False)
class _Waiting(Waiting[web.Response]):
    message: Message = field(repr=False)
    asked: Asked | None


class _Apart(Exception):  # noqa: N818 - what to do, not what went wrong
    """One of a group stands in the way of the others: each by itself, then."""


class Mailroom:
    """A transaction is under way, and what comes meanwhile goes into the next: nobody waits for company."""

    def __init__(self, link: Link, pool: Pool, *, on_written: Callable[[], None]) -> None:
        self.link = link
        self.pool = pool
        self.on_written = on_written
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._alone: set[asyncio.Task[None]] = set()

    async def take(self, message: Message, asked: Asked | None) -> web.Response:
        """The answer, after the commit; with an Idempotency-Key (`asked`), the one that was given before.

        Raises Problem and PostledgerError; UnavailableError also where it is not known to have been written.
        """
        if len(self._waiting) >= MOST:
            raise UnavailableError("too many messages wait for the database")
        one = _Waiting(message, asked)
        self._waiting.append(one)
        self._arrived.set()
        return await one.answered(WITHIN)

    async def step(self) -> None:
        """One transaction with what waits."""
        await self._arrived.wait()
        group = self._next_group()
        if not self._waiting:
            self._arrived.clear()
        try:
            if group:
                await self._write_together(group)
        except BaseException:
            for one in group:  # whatever went wrong, nobody is left waiting
                one.refuse(UnavailableError("the message could not be written down"))
            raise

    async def close(self) -> None:
        """Nobody waits any more: requests have ended."""
        for task in self._alone:
            task.cancel()
        await asyncio.gather(*self._alone, return_exceptions=True)

    def _next_group(self) -> list[_Waiting]:
        """Of one campaign, whose refusal is then the refusal of each; and no Idempotency-Key twice."""
        group: list[_Waiting] = []
        later: deque[_Waiting] = deque()
        keys: set[tuple[int, str]] = set()
        while self._waiting and len(group) < MESSAGES:
            one = self._waiting.popleft()
            if one.is_over:
                continue  # who asked has gone
            key = None if one.asked is None else (one.asked.api_key, one.asked.key)
            if (group and one.message.campaign != group[0].message.campaign) or key in keys:
                later.append(one)
                continue
            group.append(one)
            if key is not None:
                keys.add(key)
        self._waiting.extendleft(reversed(later))
        return group

    async def _write_together(self, group: Sequence[_Waiting]) -> None:
        try:
            async with self.link.use() as conn:
                written = await _in_turn(conn, group, TOGETHER_WAITS)
        except LinkLost as error:
            log.warning("messages_refused", messages=len(group), reason=str(error)[:200])
            self._give(group, [UnavailableError(str(error))] * len(group))
        except _Apart:
            for one in group:
                task = asyncio.create_task(self._write_alone(one), name="message")
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)
        except asyncpg.PostgresError as error:
            self._give(group, [_told(error, self.pool.database.dsn)] * len(group))
        else:
            self._give(group, written)

    async def _write_alone(self, one: _Waiting) -> None:
        try:
            async with self.pool.connection() as conn:
                (written,) = await _in_turn(conn, [one], ALONE_WAITS)
        except _Apart as error:
            written = _apart(error)
        except PostledgerError as error:
            written = error
        except asyncpg.PostgresError as error:
            written = _told(error, self.pool.database.dsn)
        self._give([one], [written])

    def _give(self, group: Sequence[_Waiting], written: Sequence[web.Response | Exception]) -> None:
        for one, what in zip(group, written, strict=True):
            if isinstance(what, Exception):
                one.refuse(what)
            else:
                one.give(what)
        self.on_written()  # also where it is not known whether it was committed


async def _in_turn(conn: Connection, group: Sequence[_Waiting], patience: str) -> Sequence[web.Response | Exception]:
    """In one transaction. What its cause in one message is raises _Apart, with the cause."""
    try:
        async with conn.transaction():
            await conn.execute(sql.be_short, patience)
            return await _write(conn, group)
    except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
        raise _Apart from error
    except asyncpg.PostgresError as error:
        if error.sqlstate == "PL003":
            raise _Apart from error
        raise


async def _write(conn: Connection, group: Sequence[_Waiting]) -> list[web.Response | Exception]:
    known = await _recall(conn, group)
    fresh = [one for one in group if one not in known]
    written: dict[_Waiting, web.Response] = {}
    if fresh:
        found = await messages.enqueue(conn, fresh[0].message.campaign, [one.message for one in fresh])
        for one, (delivery_id, new) in zip(fresh, found, strict=True):
            written[one] = answer(Accepted(Id(delivery_id), new), 202)
        await _remember(conn, [(one.asked, response) for one, response in written.items() if one.asked is not None])
    return [known[one] if one in known else written[one] for one in group]


async def _recall(conn: Connection, group: Sequence[_Waiting]) -> dict[_Waiting, web.Response | Exception]:
    """Those that were asked before, with what was answered; for all others this transaction has their keys."""
    keyed = [(one, one.asked) for one in group if one.asked is not None]
    if not keyed:
        return {}
    api_keys, keys = [asked.api_key for _, asked in keyed], [asked.key for _, asked in keyed]
    found: dict[_Waiting, web.Response | Exception] = {}
    for (one, asked), row in zip(keyed, await conn.fetch(sql.recall_all, api_keys, keys), strict=True):
        try:
            response = replayed(asked, row)
        except Problem as problem:
            found[one] = problem
        else:
            if response is not None:
                found[one] = response
    return found


async def _remember(conn: Connection, answers: Sequence[tuple[Asked, web.Response]]) -> None:
    if answers:
        await conn.execute(
            sql.remember_all,
            [asked.api_key for asked, _ in answers],
            [asked.key for asked, _ in answers],
            [asked.request for asked, _ in answers],
            [response.body for _, response in answers],
        )


def _apart(error: _Apart) -> Exception:
    cause = error.__cause__
    if isinstance(cause, asyncpg.PostgresError) and cause.sqlstate == "PL003":
        return Problem("invalid", first_line(cause), field=cause.column_name)
    return Problem(
        "unavailable",
        "somebody else is writing this key just now",
        field="key",
        remedy="try again",
        headers={"Retry-After": AGAIN_IN},
    )


def _told(error: asyncpg.PostgresError, dsn: str) -> Exception:
    return translate(error, dsn) or error


MAILROOM: web.AppKey[Mailroom] = web.AppKey("mailroom", Mailroom)


async def writing(app: web.Application) -> AsyncIterator[None]:
    """A mailroom for the time of the service."""
    link = Link(app[DATABASE], "http messages")

    def written() -> None:
        app[SEALER].note()
        app[WAKER].note()

    app[MAILROOM] = mailroom = Mailroom(link, app[POOL], on_written=written)
    loop = asyncio.ensure_future(forever(mailroom.step, "http messages"))
    yield
    loop.cancel()
    await asyncio.gather(loop, return_exceptions=True)
    await mailroom.close()
    await link.close()
