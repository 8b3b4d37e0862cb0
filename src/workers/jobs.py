"""What a worker knows of a campaign while it sends it: letter, policy, and the lane of its sender."""

from __future__ import annotations

import asyncio

from attrs import define

from ..database import Connection
from ..ledger import campaigns, senders
from ..ledger.campaigns import Campaign
from ..messages.addresses import parse_mailbox
from .decide import Policy
from .lanes import Lane
from .link import Link
from .providers import registry
from .writer import Writer

REFUSED_IN_A_ROW = 3
"""Messages refused for what they are, one after the other, before the campaign pauses."""


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
    refused: int = 0

    def refusal(self) -> bool:
        """Counts a refused message; True when it was one too many."""
        self.refused += 1
        return self.refused >= REFUSED_IN_A_ROW


class Jobs:
    """Campaigns and lanes by id, loaded when first asked for."""

    def __init__(self, link: Link, *, concurrency: int, base_url: str | None, room: asyncio.Event) -> None:
        self.link = link
        self.concurrency = concurrency
        self.base_url = base_url
        self.room = room
        self._jobs: dict[int, Job] = {}
        self._lanes: dict[int, Lane] = {}

    def known(self, campaign_id: int) -> Job:
        """A job that was loaded before."""
        return self._jobs[campaign_id]

    async def lane_of(self, campaign_id: int) -> Lane:
        """The lane that serves this campaign."""
        return (await self.job(campaign_id)).lane

    async def job(self, campaign_id: int) -> Job:
        """The campaign, loaded once. Raises PostledgerError when its sender or letter cannot be used here."""
        job = self._jobs.get(campaign_id)
        if job is None:
            async with self.link.use() as conn:
                job = await self._load(conn, campaign_id)
            self._jobs[campaign_id] = job
        return job

    async def close(self) -> None:
        """Closes every provider."""
        for lane in self._lanes.values():
            await lane.provider.close()

    async def _load(self, conn: Connection, campaign_id: int) -> Job:
        campaign = await campaigns.read(conn, campaign_id)
        settings = campaign.settings
        lane = self._lanes.get(settings.sender_id)
        if lane is None:
            provider = registry.make(await senders.read_url(conn, settings.sender_id), concurrency=self.concurrency)
            lane = self._lanes[settings.sender_id] = Lane(provider, self.concurrency, self.room)
        writer = await Writer.load(conn, campaign, self.base_url) if lane.provider.renders else None
        policy = Policy(settings.attempts, settings.max_deferred, settings.give_up)
        return Job(campaign, policy, lane, parse_mailbox(settings.mail_from).address, writer)
