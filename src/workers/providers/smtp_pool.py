"""The open sessions with a relay: reused while they are good, never more than the relay and we allow."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from .base import NotBegun
from .smtp_session import SmtpSession

MAILS_PER_SESSION = 500
REFUSALS_PER_SESSION = 8
"""Postfix slows a session down after ten refusals in a row and closes it after twenty."""
IDLE_SECONDS = 4.0
"""Amazon's door hangs up after five."""
RELIEF_SECONDS = 60.0
"""So long a relay that wanted no further session is not asked for one."""


class SmtpPool:
    """At most `size` sessions; who finds none free waits, which is back-pressure and nobody's failure."""

    def __init__(self, connect: Callable[[], Awaitable[SmtpSession]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._limit = size
        self._relief: asyncio.TimerHandle | None = None
        self._idle: deque[SmtpSession] = deque()
        self._connecting = 0
        self._established = 0
        self._turns: deque[asyncio.Future[None]] = deque()
        self._goodbyes: set[asyncio.Task[None]] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def take(self, *, new: bool = False) -> SmtpSession:
        """A session that is ready, used last where possible; with `new` one that nobody used before.

        Raises NotBegun where the relay lets nobody in.
        """
        while True:
            if new:
                self._make_room()
            elif (session := await self._take_idle()) is not None:
                return session
            if self._established + self._connecting >= self._limit:
                await self._turn()
            elif (session := await self._establish()) is not None:
                return session

    def give(self, session: SmtpSession) -> None:
        """Back from a mail; kept where it is good for more."""
        worn = session.carried >= MAILS_PER_SESSION or session.refused_in_a_row >= REFUSALS_PER_SESSION
        if self._closed or session.broken or worn:
            self._discard(session)
            return
        session.rested = True
        self._idle.append(session)
        self._plan_sweep()
        self._wake()

    async def close(self) -> None:
        """Says goodbye on every idle session; those still out are hung up as they come back."""
        for timer in (self._sweep, self._relief):
            if timer is not None:
                timer.cancel()
        while self._idle:
            self._discard(self._idle.pop())
        self._closed = True
        await asyncio.gather(*self._goodbyes)

    async def _take_idle(self) -> SmtpSession | None:
        while self._idle:
            session = self._idle.pop()
            try:
                if await session.is_ready():
                    return session
            except BaseException:
                session.abort()
                self._discard(session)
                raise
            session.abort()
            self._discard(session)
        return None

    async def _establish(self) -> SmtpSession | None:
        """None where the relay wants no session beside those it has let in: then one waits for a turn."""
        self._connecting += 1
        try:
            session = await self._connect()
        except BaseException as failure:
            self._connecting -= 1
            if isinstance(failure, NotBegun) and self._is_crowded(failure):
                self._be_content()
                return None
            if isinstance(failure, NotBegun):
                self._turn_away(failure)
            self._wake()
            raise
        self._connecting -= 1
        self._established += 1
        return session

    def _is_crowded(self, refusal: NotBegun) -> bool:
        code = refusal.reply.code
        return self._established > 0 and (code is None or code < 500)

    def _turn_away(self, refusal: NotBegun) -> None:
        """With no session at all, whoever waits for one hears at once what the relay said."""
        while self._turns and not self._established:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_exception(NotBegun(refusal.reply))

    def _be_content(self) -> None:
        """With the sessions there are, for a while."""
        self._limit = max(self._established, 1)
        if self._relief is None:
            self._relief = asyncio.get_running_loop().call_later(RELIEF_SECONDS, self._try_more)

    def _try_more(self) -> None:
        self._relief = None
        self._limit = self._size
        for _ in range(len(self._turns)):
            self._wake()

    def _make_room(self) -> None:
        if self._idle and self._established + self._connecting >= self._limit:
            self._discard(self._idle.popleft())

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            # Woken and cancelled at once: the wake-up belongs to the next in line.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._wake()
            raise

    def _wake(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _discard(self, session: SmtpSession) -> None:
        self._established -= 1
        if session.broken or self._closed:
            session.abort()
        else:
            goodbye = asyncio.get_running_loop().create_task(session.quit())
            self._goodbyes.add(goodbye)
            goodbye.add_done_callback(self._goodbyes.discard)
        self._wake()

    def _plan_sweep(self) -> None:
        if self._sweep is None and self._idle:
            self._sweep = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep_idle)

    def _sweep_idle(self) -> None:
        self._sweep = None
        while self._idle and self._idle[0].idle_seconds >= IDLE_SECONDS:
            self._discard(self._idle.popleft())
        self._plan_sweep()
