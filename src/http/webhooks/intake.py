"""Takes many posts in one transaction, and answers each when that has been committed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import asyncpg
import structlog
from attrs import evolve, frozen

from ...database import first_line
from ...errors import UnavailableError
from ...ledger import feedback
from ...ledger.feedback import Outcome, Post
from ...workers.link import Link, LinkLost
from ..waiting import Waiting
from .vocabulary import WINDOW_IN

log = structlog.get_logger(__name__)

POSTS = 500
"""In one transaction, which then takes some hundredths of a second."""

ITEMS = 2_000

MOST = 64 << 20
"""Bytes of posts that wait: beyond that who posts is told to come again."""

WITHIN = 10.0
"""Seconds for one post, waiting included: SNS waits for 15."""

ANSWER_WITHIN = 8.0


@frozen(eq=False)
class _Waiting(Waiting[Outcome]):
    post: Post


class Intake:
    """A transaction is under way, and what comes meanwhile goes into the next: nobody waits for company."""

    def __init__(
        self, link: Link, *, on_appended: Callable[[], None], on_unlinked: Callable[[], None], most: int = MOST
    ) -> None:
        self.link = link
        self.on_appended = on_appended
        self.on_unlinked = on_unlinked
        self.most = most
        self._waiting: deque[_Waiting] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Posts that no transaction has taken yet."""
        return len(self._waiting)

    async def take(self, post: Post) -> Outcome:
        """Returns after the commit. Raises UnavailableError when it is not known to have been taken."""
        if self._bytes + len(post.payload) > self.most:
            raise UnavailableError("too many posts wait for the database")
        one = _Waiting(post)
        self._waiting.append(one)
        self._bytes += len(post.payload)
        self._arrived.set()
        return await one.answered(WITHIN)

    async def step(self) -> None:
        """One transaction with what waits."""
        await self._arrived.wait()
        group = self._next_group()
        if not self._waiting:
            self._arrived.clear()
        if group:
            try:
                await self._note(group)
            finally:
                for one in group:  # whatever went wrong, nobody is left waiting
                    one.refuse(UnavailableError("the post could not be written down"))

    async def finish(self, *, within: float = 5.0) -> None:
        """What waits is written down before the process leaves, unless that takes too long."""
        try:
            async with asyncio.timeout(within):
                while self._waiting:
                    await self.step()
        except TimeoutError:
            log.warning("posts_left", waiting=self.waiting)

    def _next_group(self) -> list[_Waiting]:
        """Those that still wait for an answer: who has gone away sends again."""
        group: list[_Waiting] = []
        items = 0
        while self._waiting and len(group) < POSTS and (not group or items + len(self._waiting[0].post.items) <= ITEMS):
            one = self._waiting.popleft()
            self._bytes -= len(one.post.payload)
            if not one.is_over:
                group.append(one)
                items += len(one.post.items)
        return group

    async def _note(self, group: Sequence[_Waiting]) -> None:
        try:
            await self._receive(group)
        except LinkLost as error:
            log.warning("posts_refused", posts=len(group), reason=str(error)[:200])
        except asyncpg.PostgresError as error:
            log.error("posts_regrouped", posts=len(group), reason=first_line(error), sqlstate=error.sqlstate)
            for one in group:
                await self._note_alone(one)

    async def _note_alone(self, one: _Waiting) -> None:
        """A post that the database cannot take harms no other: it is kept as it came, and read again after a mend."""
        try:
            await self._receive([one])
        except LinkLost as error:
            log.warning("posts_refused", posts=1, reason=str(error)[:200])
        except asyncpg.PostgresError as error:
            log.error("post_not_noted", provider=one.post.provider, reason=first_line(error), sqlstate=error.sqlstate)
            fault = f"could not be noted (SQLSTATE {error.sqlstate})"
            try:
                await self._receive([one], [evolve(one.post, items=(), fault=fault)])
            except (LinkLost, asyncpg.PostgresError) as again:
                log.error("post_refused", provider=one.post.provider, reason=str(again)[:200])

    async def _receive(self, group: Sequence[_Waiting], posts: Sequence[Post] | None = None) -> None:
        """`posts`: instead of theirs."""
        posts = [one.post for one in group] if posts is None else posts
        async with self.link.use() as conn:
            received = await feedback.receive(conn, posts, window=WINDOW_IN, timeout=ANSWER_WITHIN)
        for one, outcome in zip(group, received.outcomes, strict=True):
            one.give(outcome)
        if received.appended:
            self.on_appended()
        if received.unlinked:
            self.on_unlinked()
