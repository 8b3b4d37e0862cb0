"""What a worker knows of a campaign while it sends it: letter, policy, and the lane of its sender."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

import structlog
from attrs import define, field

from ..database import Connection
from ..errors import ConfigurationError, UnavailableError
from ..ledger import campaigns, senders
from ..ledger.campaigns import Campaign
from ..messages.addresses import parse_mailbox
from ..messages.mime import Composed
from .decide import Policy
from .failures import Failures
from .lanes import Lane
from .link import Link, LinkLost
from .providers import registry
from .writer import Writer

log = structlog.get_logger(__name__)

MOST_JOBS = 100
"""Campaigns that are remembered: a worker lives longer than they do."""

REFUSED_IN_A_ROW = 3
"""Messages refused for what they are, one after the other, before the campaign pauses."""


class Pause(Protocol):
    """Pauses a campaign that cannot go on, until somebody resumes it or for so long."""

    async def __call__(self, campaign_id: int, reason: str, resume_in: timedelta | None = None) -> None: ...


@define
class Job:
    """One campaign in this worker. Its letter cannot change any more: it has started."""

    campaign: Campaign
    policy: Policy
    lane: Lane
    sender: str
    """The bare address that the mails come from."""
    writer: Writer | None
    """None where the provider never looks at a message."""
    failures: Failures
    refused: int = 0
    _unseen: dict[int, Mapping[str, object]] = field(factory=dict, init=False)
    """What Sent says, by attempt, where the provider never looks at a message: one for a whole batch."""

    def sent(self, attempt: int, composed: Composed | None) -> Mapping[str, object]:
        """What the event of an accepted mail says."""
        if composed is None and attempt in self._unseen:
            return self._unseen[attempt]
        body = {"attempt": attempt, "provider": self.lane.provider.name, "template": self.campaign.source.hash}
        if composed is not None:
            return body | {"message_id": composed.message_id, "content_sha256": composed.sha256}
        return self._unseen.setdefault(attempt, body)

    def refusal(self) -> bool:
        """Counts a refused message; True when it was one too many."""
        self.refused += 1
        return self.refused >= REFUSED_IN_A_ROW


class Jobs:
    """Campaigns and lanes by id, loaded when first asked for.

    A lane is open when its provider is: that may take long, so it happens beside the loop that claims.
    """

    def __init__(
        self,
        link: Link,
        *,
        concurrency: int,
        base_url: str | None,
        room: asyncio.Event,
        pause: Pause,
    ) -> None:
        self.link = link
        self.concurrency = concurrency
        self.base_url = base_url
        self.room = room
        self.pause = pause
        self._jobs: dict[int, Job] = {}
        self._lanes: dict[int, Lane] = {}
        self._waiting: dict[int, set[int]] = {}
        """The campaigns that a closed lane keeps waiting, by sender."""
        self._trials: set[asyncio.Task[None]] = set()

    def known(self, campaign_id: int) -> Job:
        """A job that was loaded before."""
        return self._jobs[campaign_id]

    async def lane_of(self, campaign_id: int) -> Lane:
        """The lane that serves this campaign. Raises PostledgerError when sender or letter cannot be used here."""
        job = await self._job(campaign_id)
        sender_id = job.campaign.settings.sender_id
        if not job.lane.is_open:
            self._waiting.setdefault(sender_id, set()).add(campaign_id)
        if job.lane.wants_trial:
            job.lane.on_trial()
            trial = asyncio.create_task(self._try(job.lane, sender_id), name=f"trial of sender {sender_id}")
            self._trials.add(trial)
            trial.add_done_callback(self._trials.discard)
        return job.lane

    async def close(self) -> None:
        """Closes every provider."""
        for trial in self._trials:
            trial.cancel()
        await asyncio.gather(*self._trials, return_exceptions=True)
        await asyncio.gather(*(lane.provider.close() for lane in self._lanes.values()))

    async def _job(self, campaign_id: int) -> Job:
        job = self._jobs.get(campaign_id)
        if job is None:
            async with self.link.use() as conn:
                job = await self._load(conn, campaign_id)
            while len(self._jobs) >= MOST_JOBS:
                del self._jobs[next(iter(self._jobs))]
            self._jobs[campaign_id] = job
        return job

    async def _load(self, conn: Connection, campaign_id: int) -> Job:
        campaign = await campaigns.read(conn, campaign_id)
        settings = campaign.settings
        lane = self._lanes.get(settings.sender_id)
        if lane is None:
            url = await senders.read_url(conn, settings.sender_id)
            provider = registry.make(url, concurrency=self.concurrency)
            lane = self._lanes[settings.sender_id] = Lane(
                provider, url, self.concurrency, self.room, sender=settings.sender_id
            )
        writer = await Writer.load(conn, campaign, self.base_url) if lane.provider.renders else None
        policy = Policy(settings.attempts, settings.max_deferred, settings.give_up)
        address = parse_mailbox(settings.mail_from).address
        return Job(campaign, policy, lane, address, writer, Failures(settings.max_errors))

    async def _try(self, lane: Lane, sender_id: int) -> None:
        """Does the relay let us in? One that refuses us pauses the campaigns that waited: a person must look."""
        try:
            await self._renew(lane, sender_id)
            await lane.provider.open()
        except (LinkLost, UnavailableError) as error:
            lane.broke(str(error))
        except ConfigurationError as error:
            lane.broke(str(error))
            for campaign_id in self._waiting.pop(sender_id, set()):
                await self.pause(campaign_id, "provider_auth")
        except Exception as error:  # a fault of ours or of a provider from elsewhere
            log.exception("trial_failed", provider=lane.provider.name)
            lane.broke(str(error))
        else:
            self._waiting.pop(sender_id, None)
            lane.opened()

    async def _renew(self, lane: Lane, sender_id: int) -> None:
        """The password may have been corrected since it was refused."""
        async with self.link.use() as conn:
            url = await senders.read_url(conn, sender_id)
        if url != lane.url:
            former, lane.provider = lane.provider, registry.make(url, concurrency=self.concurrency)
            lane.url = url
            await former.close()
