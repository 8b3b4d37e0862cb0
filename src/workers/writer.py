"""Turns a claimed delivery into the mail that leaves, by the letter of its campaign."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Literal, cast
from urllib.parse import urlsplit

import structlog

from ..database import Connection
from ..ledger import campaigns, senders
from ..ledger.campaigns import Campaign
from ..ledger.queue import Delivery
from ..messages.addresses import parse_mailbox
from ..messages.doors import Door, door_of
from ..messages.letter import Campaign as LetterCampaign
from ..messages.letter import Letter, Recipient
from ..messages.mime import Composed, Press, RenderError, prepare
from ..messages.tracking import TrackedLinks
from ..messages.unsubscribe import UnsubscribeLinks

log = structlog.get_logger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


class Writer:
    """One campaign's letter, compiled; makes each recipient's mail."""

    def __init__(
        self,
        press: Press,
        campaign: LetterCampaign,
        links: UnsubscribeLinks | None,
        *,
        tracked: TrackedLinks | None = None,
        door: Door | None = None,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self.press = press
        self.campaign = campaign
        self.links = links
        self.tracked = tracked
        self.door = door
        self.now = now

    @classmethod
    async def load(cls, conn: Connection, campaign: Campaign, base_url: str | None) -> Writer:
        """Compiles the letter. Raises TemplateError or HeaderError, which the checklist should have found."""
        settings = campaign.settings
        links = tracked = None
        if base_url is not None:
            secret = await campaigns.secret(conn, "unsubscribe")
            links = UnsubscribeLinks(base_url, secret)
            tracked = _tracked(settings.track, base_url, secret)
        elif settings.track:
            log.warning("not_tracked", campaign=campaign.id, remedy="this worker has no POSTLEDGER_URL: set it")
        kind = cast('Literal["bulk", "standing"]', settings.kind)
        parts = urlsplit(await senders.read_url(conn, settings.sender_id))
        door = door_of(parts.hostname) if parts.scheme in ("smtp", "smtps") else None
        return cls(prepare(letter_of(campaign)), LetterCampaign(settings.name, kind), links, tracked=tracked, door=door)

    def compose(self, delivery: Delivery) -> Composed:
        """The mail of one delivery. Raises RenderError for what is this recipient's fault."""
        if delivery.email is None or delivery.key is None:
            raise RenderError("recipient", "erased")
        recipient = Recipient(
            delivery_id=delivery.delivery_id,
            campaign_id=delivery.campaign_id,
            email=delivery.email,
            name=delivery.name,
            key=delivery.key,
            data=delivery.data or {},
        )
        return self.press.compose(
            recipient,
            campaign=self.campaign,
            date=self.now(),
            attempt=delivery.attempt,
            unsubscribe=self.links,
            tracked=self.tracked,
            door=self.door,
        )


def _tracked(track: Collection[str], base_url: str, secret: bytes) -> TrackedLinks | None:
    if not track:
        return None
    return TrackedLinks(base_url, secret, opens="opens" in track, clicks="clicks" in track)


def letter_of(campaign: Campaign) -> Letter:
    """The campaign's letter as `messages` takes it."""
    settings, source = campaign.settings, campaign.source
    return Letter(
        subject=source.subject,
        sender=parse_mailbox(settings.mail_from),
        html=source.html or "",
        text=source.text,
        reply_to=None if settings.reply_to is None else parse_mailbox(settings.reply_to),
    )
