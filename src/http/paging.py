"""A part of a list: where it begins, how long it is, and the cursor of the next one."""

from __future__ import annotations

from attrs import frozen

from ..ledger import limits
from .problems import Problem


@frozen
class Paging:
    """Which part of a list."""

    after: str | None = limits.cursor()
    """`next` of the page before."""
    limit: int = limits.page_size()
    """Items on a page, at most."""

    def after_id(self) -> int:
        """The id behind which the page begins. Raises Problem where `after` is no cursor of such a list."""
        text = self.after or "0"
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise no_cursor(text)
        return int(text)

    def after_hash(self) -> str:
        """The same where the list is in the order of hashes, in hex."""
        text = self.after or ""
        if text and not (
            len(text) == 64 and text.isascii() and text.isalnum() and set(text) <= set("0123456789abcdef")
        ):
            raise no_cursor(text)
        return text


def no_cursor(text: str) -> Problem:
    """What is said of a cursor that is none."""
    return Problem("invalid", f"{text[:40]!r} is no cursor", field="after", remedy="give the `next` of the page before")
