"""The SMTP doors of providers: by which header a mail takes our reference along, so that webhooks bring it back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

Door: TypeAlias = Callable[[int, int], str]
"""From campaign and delivery to a header line."""


def _mailgun(campaign_id: int, delivery_id: int) -> str:
    return f'X-Mailgun-Variables: {{"delivery_id": "{campaign_id}.{delivery_id}"}}\r\n'


def _sendgrid(campaign_id: int, delivery_id: int) -> str:
    return f'X-SMTPAPI: {{"unique_args": {{"delivery_id": "{campaign_id}.{delivery_id}"}}}}\r\n'


def _postmark(campaign_id: int, delivery_id: int) -> str:
    return f"X-PM-Metadata-delivery_id: {campaign_id}.{delivery_id}\r\n"


def _ses(campaign_id: int, delivery_id: int) -> str:
    """A tag's value may hold no dot."""
    return f"X-SES-MESSAGE-TAGS: delivery_id={campaign_id}-{delivery_id}\r\n"


_DOORS: tuple[tuple[re.Pattern[str], Door], ...] = (
    (re.compile(r"smtp(\.eu)?\.mailgun\.org"), _mailgun),
    (re.compile(r"smtp(\.eu)?\.sendgrid\.net"), _sendgrid),
    (re.compile(r"smtp(-broadcasts)?\.postmarkapp\.com"), _postmark),
    (re.compile(r"email-smtp(-fips)?\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"), _ses),
)


def door_of(host: str | None) -> Door | None:
    """That of a relay's host name; None where the relay is nobody's whose webhooks we take."""
    name = (host or "").lower().rstrip(".")
    return next((door for pattern, door in _DOORS if pattern.fullmatch(name)), None)
