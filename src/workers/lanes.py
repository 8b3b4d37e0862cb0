"""One lane per sender: its provider, how much of it is free, its rate, and a breaker for when the relay is down."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import structlog

from .loops import monotonic
from .providers.base import Provider
from .tokens import Tokens

log = structlog.get_logger(__name__)

OPEN_FIRST = 1.0
OPEN_LONGEST = 60.0
CLAIM_EVERY = 0.1
"""Seconds after which a claim may be smaller than half a lane: slow sends must not starve the free slots."""

SPARE = 25
"""Of so many slots one is only for a campaign that has none: those of the others may all hang."""

BATCHES = 3
"""Provider calls under way at once where one call carries a whole batch: one is claimed, one sent, one settled."""

QUOTA_IN_A_ROW = 10
"""Recipients that were never tried before and got a 452, one after the other: so many full mailboxes in a row there are
not. It is the sender who may not send any more, whatever the words are."""

NEVER = float("inf")

_ADDRESS = re.compile(r"[^\s<>]+@[^\s<>]+")
"""A relay that refuses a login may name who tried it."""


class Lane:
    """Slots of one sender. A slot is taken by a claim and free again when the outcome is committed.

    The breaker: a lane is claimed for when its relay has answered a trial (`opened`). When sends cannot even begin
    (`broke`) nobody tries the relay for a while; then comes another trial, and after it one mail, before the rest. One
    mail comes first too where the sender had used up its quota.
    """

    def __init__(
        self,
        provider: Provider,
        url: str,
        concurrency: int,
        room: asyncio.Event,
        *,
        sender: int = 0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.sender = sender
        self.provider = provider
        self.url = url
        """With its password: never for a log."""
        self.capacity = concurrency if provider.batch == 1 else provider.batch * BATCHES
        self.room = room
        """Set when a claim may be worth while again; shared by all lanes of a worker."""
        self.taken = 0
        self.held: Counter[int] = Counter()
        """Slots by campaign."""
        self.tokens: Tokens | None = None
        """What may begin at the sender's rate; None: it has none."""
        self.clock = clock
        self._rate: str | None = None
        self._quota_replies = 0
        self._short_of_quota = False
        self._on_probe = False
        """The one mail that proves the sender has been claimed: only from then on does an answer prove anything."""
        self._pausing: set[int] = set()
        """Campaigns that are being paused for want of quota."""
        self.is_open = False
        self._on_trial = False
        self._failures = 0
        self._opens_at = 0.0
        self._small_from = 0.0
        """When the next claim may be smaller than half the lane."""

    @property
    def free(self) -> int:
        return self.capacity - self.taken

    @property
    def spare(self) -> int:
        """Slots that a campaign may take only while it has none."""
        return self.capacity // SPARE if self.provider.batch == 1 else 0

    @property
    def _in_doubt(self) -> bool:
        """One mail goes first, and proves relay and quota, before the rest."""
        return self._failures > 0 or self._short_of_quota

    @property
    def wants_trial(self) -> bool:
        """Whether somebody has to find out if the relay lets us in."""
        return not self.is_open and not self._on_trial and self.clock() >= self._opens_at

    def limit(self, rate: str | None) -> None:
        """The sender's rate as it is now; another one takes effect at once."""
        if rate != self._rate:
            self._rate = rate
            self.tokens = None if rate is None else Tokens(self.clock)

    def share(self, rivals: int) -> int:
        """The slots that one of so many campaigns may hold; whole batches, where a call carries one."""
        if rivals <= 1:
            return self.capacity
        batch = self.provider.batch
        return max(batch, self.capacity // rivals // batch * batch if batch > 1 else -(-self.capacity // rivals))

    def wants_tokens(self) -> timedelta | None:
        """How much of the sender's time to lease: only where a slot is free for what would begin in it."""
        if self.tokens is None or not self._slots():
            return None
        return self.tokens.wants()

    def claimable(self) -> int:
        """How many rows may be claimed now: no more than can begin at once."""
        slots = self._slots()
        return slots if self.tokens is None or not slots else min(slots, self.tokens.ready())

    def _slots(self) -> int:
        """Half the lane at least, one while the relay is tried again."""
        now = self.clock()
        if not self.is_open or now < self._opens_at or self._pausing:
            return 0
        if self._in_doubt:
            return 1 if self.taken == 0 else 0
        if self.provider.batch > 1:
            return self.provider.batch if self.free >= self.provider.batch else 0
        enough = self.free * 2 >= self.capacity or (self.free > 0 and now >= self._small_from)
        return self.free if enough else 0

    def retry_in(self) -> float:
        """Seconds until a lane that is not claimable may be, by the clock alone; for the rest there is `room`."""
        now = self.clock()
        if self._on_trial or self._pausing:
            return NEVER
        if now < self._opens_at:
            return self._opens_at - now
        if self.tokens is not None and self._slots():
            return self.tokens.ready_in()
        if self._in_doubt or self.provider.batch > 1 or not self.free:
            return NEVER
        return max(self._small_from - now, 0.0)

    def take(self, count: int, campaign_id: int) -> None:
        """Rows were claimed for this lane."""
        self._on_probe = self._on_probe or self.taken == 0
        self.taken += count
        self.held[campaign_id] += count
        self._small_from = self.clock() + CLAIM_EVERY
        if self.tokens is not None:
            self.tokens.spend(count)

    def give_back(self, count: int, campaign_id: int) -> None:
        """Outcomes are committed."""
        was_full = self.free <= self.spare
        self.taken -= count
        self.held[campaign_id] -= count
        if not self.held[campaign_id]:
            del self.held[campaign_id]
        batch = self.provider.batch
        enough = self.free >= batch if batch > 1 else self.free * 2 >= self.capacity
        if was_full or enough or campaign_id not in self.held:
            self.room.set()

    def on_trial(self) -> None:
        """Somebody finds out now; `opened` or `broke` follows."""
        self._on_trial = True

    def opened(self) -> None:
        """The trial went well."""
        self.is_open = True
        self._on_trial = False
        self.room.set()

    def worked(self) -> None:
        """The relay answered a mail: the breaker closes, unless that mail was under way before it opened."""
        if self._on_probe:
            self._failures = 0

    def accepted(self) -> None:
        """The relay took a mail: there is quota, unless that mail was under way when others were refused."""
        self._quota_replies = 0
        if self._on_probe:
            self._short_of_quota = False

    def refused_452(self, *, fresh: bool) -> bool:
        """A recipient got a 452, at its first try (`fresh`) or later; whether that tells of the sender's quota."""
        self._quota_replies += fresh
        return self._short_of_quota or self._quota_replies >= QUOTA_IN_A_ROW

    def short_of_quota(self, campaign_id: int) -> None:
        """The sender may not send any more: nothing until `paused`, and until a mail is taken again one at a time."""
        self._short_of_quota = True
        self._on_probe = False
        self._pausing.add(campaign_id)

    def paused(self, campaign_id: int) -> None:
        """The pause is committed, or could not be."""
        if campaign_id in self._pausing:
            self._pausing.remove(campaign_id)
            self.room.set()

    def broke(self, why: str) -> timedelta:
        """The relay refused us or is down: nobody tries it for a while; returns how long."""
        now = self.clock()
        if now >= self._opens_at:  # the sends that fail together count once
            self._failures += 1
            self._on_probe = False
            wait = min(OPEN_FIRST * 2 ** (self._failures - 1), OPEN_LONGEST)
            self._opens_at = now + wait
            log.warning(
                "relay_down", provider=self.provider.name, reason=_ADDRESS.sub("<address>", why)[:200], retry_in=wait
            )
        self.is_open = False
        if self._on_trial:
            self._on_trial = False
            self.room.set()
        return timedelta(seconds=self._opens_at - now)

    def wait(self, how_long: timedelta) -> None:
        """The relay asked the whole sender to slow down."""
        self._opens_at = max(self._opens_at, self.clock() + how_long.total_seconds())
