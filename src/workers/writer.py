"""Turns a claimed delivery into the mail that leaves, by the letter of its campaign."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, cast

from ..database import Connection
from ..ledger import campaigns
from ..ledger.campaigns import Campaign
from ..ledger.queue import Delivery
from ..messages.addresses import parse_mailbox
from ..messages.letter import Campaign as LetterCampaign
from ..messages.letter import Letter, Recipient
from ..messages.mime import Composed, Press, RenderError, prepare
from ..messages.unsubscribe import UnsubscribeLinks


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
        now: Callable[[], datetime] = _now,
    ) -> None:
        self.press = press
        self.campaign = campaign
        self.links = links
        self.now = now

    @classmethod
    async def load(cls, conn: Connection, campaign: Campaign, base_url: str | None) -> Writer:
        """Compiles the letter. Raises TemplateError or HeaderError, which the checklist should have found."""
        settings = campaign.settings
        links = None
        if base_url is not None:
            links = UnsubscribeLinks(base_url, await campaigns.secret(conn, "unsubscribe"))
        kind = cast('Literal["bulk", "standing"]', settings.kind)
        return cls(prepare(letter_of(campaign)), LetterCampaign(settings.name, kind), links)

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
        )


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
