"""One recipient's mail, from a letter to the exact bytes that leave."""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import lru_cache
from typing import Any, TypeVar

from attrs import frozen

from ..errors import DataError
from .addresses import Address, Mailbox
from .doors import Door
from .headers import HeaderError, mailbox, unstructured, verbatim
from .letter import Campaign, Letter, Recipient
from .markup import Markup
from .tags import TemplateError
from .templates import SafeHtml, Template
from .tracking import TrackedLinks
from .unsubscribe import UnsubscribeLinks

__all__ = ["Campaign", "Composed", "Letter", "Press", "Recipient", "RenderError", "compose", "prepare"]

T = TypeVar("T")

_LINE_END = re.compile(r"\r\n?")
_ASCII = bytes(range(128))
# `b2a_qp` writes a line's last space as =20 without counting it: a line of 75 and a space gets 78 columns.
_TOO_WIDE = re.compile(rb"^(.{74,})(=20|=09)$", re.MULTILINE)


class RenderError(DataError):
    """This recipient's mail cannot be made, and no other is affected; the text holds nothing of the data."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


@frozen
class Composed:
    """A mail as it leaves: `content` has CRLF line ends and no dot-stuffing; `sha256` is the hex of its digest."""

    content: bytes
    message_id: str
    sha256: str


def compose(
    letter: Letter,
    recipient: Recipient,
    *,
    campaign: Campaign,
    date: datetime,
    attempt: int,
    unsubscribe: UnsubscribeLinks | None,
) -> Composed:
    """The same values give the same bytes. `date` needs a time zone.

    Raises RenderError for what is this recipient's fault, TemplateError or HeaderError for what is the letter's
    (the checklist finds those before the first mail).
    """
    press = prepare(letter)
    return press.compose(recipient, campaign=campaign, date=date, attempt=attempt, unsubscribe=unsubscribe)


@lru_cache(maxsize=32)
def prepare(letter: Letter) -> "Press":
    """The letter, compiled; remembered, since a worker makes thousands of mails of one letter."""
    return Press(
        _compiled("subject", lambda: Template.compile(letter.subject, "subject")),
        _compiled("html", lambda: Markup.prepare(letter.html, with_text=letter.text is None)),
        None if letter.text is None else _compiled("text", lambda: Template.compile(letter.text or "", "text")),
        letter.sender.address.domain,
        _fixed_head(letter),
    )


@frozen
class Press:
    """Makes mails of one letter."""

    subject: Template
    markup: Markup
    text: Template | None
    _domain: str
    _fixed_head: str

    def compose(
        self,
        recipient: Recipient,
        *,
        campaign: Campaign,
        date: datetime,
        attempt: int,
        unsubscribe: UnsubscribeLinks | None,
        tracked: TrackedLinks | None = None,
        door: Door | None = None,
    ) -> Composed:
        """See the function of this name; `door` is the relay's, where it takes metadata along."""
        url = None if unsubscribe is None else unsubscribe.url(recipient.campaign_id, recipient.delivery_id)
        subject, text, html = self._render(_values(recipient, campaign, url))
        if tracked is not None:  # after rendering: the address of a link may be made of several values
            html = tracked.apply(html, recipient.campaign_id, recipient.delivery_id)
        message_id = f"<{recipient.delivery_id}.{recipient.campaign_id}@{self._domain}>"
        head = "".join(
            [
                self._fixed_head,
                _personal_head(recipient, subject),
                f"Date: {_date(date)}\r\nMessage-ID: {message_id}\r\n",
                _kind_head(campaign, url),
                f"X-Postledger-Delivery: {recipient.campaign_id}.{recipient.delivery_id}\r\n",
                "" if door is None else door(recipient.campaign_id, recipient.delivery_id),
                f"X-Postledger-Attempt: {attempt}\r\nMIME-Version: 1.0\r\n",
            ]
        )
        content = head.encode("ascii") + _body(text, html, f"{recipient.delivery_id}.{recipient.campaign_id}")
        return Composed(content, message_id, hashlib.sha256(content).hexdigest())

    def _render(self, values: dict[str, Any]) -> tuple[str, str, str]:
        field = "subject"
        try:
            subject = self.subject.render(values)
            field = "html"
            html, text = self.markup.render(values)
            field = "text"
            own_text = self.text.render(values) if self.text else text
        except TemplateError as error:
            raise RenderError(field, error.what) from None
        return subject.strip(" "), own_text or "", html


def _compiled(field: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except TemplateError as error:
        raise TemplateError(error.what, error.line, field) from None


def _values(recipient: Recipient, campaign: Campaign, url: str | None) -> dict[str, Any]:
    """The merge data under its headers; a header that is called like one of ours is found in `data`."""
    own = {"email": recipient.email, "name": recipient.name, "key": recipient.key}
    return {
        **recipient.data,
        **own,
        "data": {**own, **recipient.data},
        "campaign": campaign.name,
        "unsubscribe_url": SafeHtml(url) if url else None,
    }


def _fixed_head(letter: Letter) -> str:
    lines = [mailbox("From", letter.sender)]
    if letter.reply_to is not None:
        lines.append(mailbox("Reply-To", letter.reply_to))
    if letter.list_id is not None:
        lines.append(verbatim("List-Id", letter.list_id))
    if letter.feedback_id is not None:
        lines.append(verbatim("Feedback-ID", letter.feedback_id))
    lines += [unstructured(name, value) for name, value in letter.headers]
    return "".join(lines)


def _personal_head(recipient: Recipient, subject: str) -> str:
    if not subject:
        raise RenderError("subject", "empty")
    try:
        return mailbox("To", Mailbox(recipient.name, Address(recipient.email))) + unstructured("Subject", subject)
    except HeaderError as error:
        raise RenderError(error.field.lower(), error.reason) from None


def _kind_head(campaign: Campaign, url: str | None) -> str:
    """Receipts and welcome mails are nothing to unsubscribe from; answering machines leave either kind alone."""
    if campaign.kind == "standing":
        return "Auto-Submitted: auto-generated\r\n"
    if url is None:
        return "Precedence: bulk\r\n"
    return (
        verbatim("List-Unsubscribe", f"<{url}>")
        + "List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\nPrecedence: bulk\r\n"
    )


def _date(date: datetime) -> str:
    if date.tzinfo is None:
        raise ValueError("a date without a time zone")
    return format_datetime(date.astimezone(UTC))


def _body(text: str, html: str, unique: str) -> bytes:
    """Text first, HTML last (RFC 2046 5.1.4); HTML alone where no word of text is in it."""
    if not text:
        return _part("html", html) + b"\r\n"
    # Neither quoted-printable nor base64 can hold `=_`, so no part can end itself.
    boundary = f"=_{unique}"
    return b"".join(
        [
            f'Content-Type: multipart/alternative; boundary="{boundary}"\r\n'.encode("ascii"),
            f"\r\n--{boundary}\r\n".encode("ascii"),
            _part("plain", text),
            f"\r\n--{boundary}\r\n".encode("ascii"),
            _part("html", html),
            f"\r\n--{boundary}--\r\n".encode("ascii"),
        ]
    )


def _part(subtype: str, text: str) -> bytes:
    data = _LINE_END.sub("\n", text).encode()
    encoding, encoded = _encode(data)
    head = f'Content-Type: text/{subtype}; charset="utf-8"\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n'
    return head.encode("ascii") + encoded


def _encode(data: bytes) -> tuple[str, bytes]:
    """Seven bits and 76 columns, whatever the relay says it can take; the shorter of the two encodings."""
    not_ascii = len(data.translate(None, _ASCII))
    if 2 * not_ascii > len(data) * 0.37:
        return "base64", base64.encodebytes(data.replace(b"\n", b"\r\n")).replace(b"\n", b"\r\n")
    printable = _TOO_WIDE.sub(rb"\1=\n\2", binascii.b2a_qp(data, istext=True))
    return "quoted-printable", printable.replace(b"\n", b"\r\n")
