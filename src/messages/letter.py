"""What a campaign sends, before anybody's name is in it."""

import re
from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

from .addresses import Mailbox
from .headers import HeaderError, unstructured, verbatim

Kind = Literal["bulk", "standing"]

_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_LIST_ID = re.compile(rf"(?:[^<>\"\\]* )?<{_LABEL}(?:\.{_LABEL})+>")
_FEEDBACK_ID = re.compile(r"[^\s:]*:[^\s:]*:[^\s:]*:[^\s:]{5,15}")
_HEADER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,49}")
# Ours, the relay's, or with a meaning that a letter must not change.
_TAKEN = re.compile(
    r"from|to|cc|bcc|sender|reply-to|subject|date|message-id|return-path|received.*|resent-.*|list-.*|mime-.*"
    r"|content-.*|dkim-.*|arc-.*|authentication-results|x-postledger-.*|feedback-id|precedence|auto-submitted"
    r"|errors-to|return-receipt-to|disposition-notification-to|delivered-to",
    re.IGNORECASE,
)


def _check_list_id(_: object, __: object, value: str | None) -> None:
    if value is not None:
        verbatim("List-Id", value)
        if not _LIST_ID.fullmatch(value):
            raise HeaderError("List-Id", "not of the form `Name <news.example.com>`")


def _check_feedback_id(_: object, __: object, value: str | None) -> None:
    if value is not None:
        verbatim("Feedback-ID", value)
        if not _FEEDBACK_ID.fullmatch(value):
            raise HeaderError("Feedback-ID", "not of the form `a:b:c:sender` with 5 to 15 letters for the sender")


def _check_headers(_: object, __: object, headers: tuple[tuple[str, str], ...]) -> None:
    names = [name.lower() for name, _ in headers]
    for name, value in headers:
        _check_custom_header(name, value)
        if names.count(name.lower()) > 1:
            raise HeaderError(name, "given twice")


def _check_custom_header(name: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(name):
        raise HeaderError("header name", "letters, digits and dashes only, at most 50")
    if _TAKEN.fullmatch(name):
        raise HeaderError(name, "not a header that a letter may set")
    unstructured(name, value)


@frozen
class Letter:
    """The sources of a mail: templates for subject, HTML and text, the others as they are.

    `text` None: made from the HTML. `list_id` as in RFC 2919, `Name <id.list.example.com>`; `feedback_id` as
    Gmail wants it, `a:b:c:SenderId`. Raises HeaderError where a header could not be written.
    """

    subject: str
    sender: Mailbox
    html: str
    text: str | None = None
    reply_to: Mailbox | None = None
    list_id: str | None = field(default=None, validator=_check_list_id)
    feedback_id: str | None = field(default=None, validator=_check_feedback_id)
    headers: tuple[tuple[str, str], ...] = field(default=(), validator=_check_headers)


@frozen
class Recipient:
    """Whom one mail is for. `data` is the merge data under its headers."""

    delivery_id: int
    campaign_id: int
    email: str
    name: str | None
    key: str
    data: Mapping[str, Any]


@frozen
class Campaign:
    """What a mail has to know of its campaign."""

    name: str
    kind: Kind
