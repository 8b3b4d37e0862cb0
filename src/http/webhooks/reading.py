"""From a payload as it came to what it says, whatever it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog

from . import mailgun, postmark, sendgrid, ses
from .vocabulary import Fault, Item

log = structlog.get_logger(__name__)

PARSERS: Mapping[str, Callable[[bytes], tuple[Item, ...]]] = {
    mailgun.NAME: mailgun.parse,
    sendgrid.NAME: sendgrid.parse,
    ses.NAME: ses.parse,
    postmark.NAME: postmark.parse,
}


def read(provider: str, raw: bytes) -> tuple[Item, ...]:
    """What a payload says; a fault of ours in reading it is a fault of the item, and the payload is kept for a mend."""
    try:
        return PARSERS[provider](raw)
    except Exception as error:
        log.exception("webhook_reading_failed", provider=provider)
        return (Fault(f"reading failed ({type(error).__name__})"),)
