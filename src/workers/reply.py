"""One answer of a mail server as it was read: stage, basic code, enhanced code, text."""

import re
import unicodedata
from typing import Literal, Self, get_args

from attrs import field, frozen, validators

from ..events.text import scrub

Stage = Literal["connect", "ehlo", "auth", "mail", "rcpt", "data", "eod", "any"]

STAGES: tuple[Stage, ...] = get_args(Stage)
TEXT_LIMIT = 4000
"""Characters of a reply that are kept; the table `replies` takes 4 KB each."""

_BASIC = r"[0-9]{3}(?:[ -]|$)"
# What follows must not go on like an address: `4.16.55.1` is no code.
_ENHANCED = r"([245])\.([0-9]{1,3})\.([0-9]{1,3})(?![0-9.]*[0-9])"
# At the start of a line, or marked by '#' as qmail does it. Elsewhere three numbers with dots are as likely a
# version or the tail of an address.
_ENHANCED_AT = re.compile(rf"^[ \t]*(?:{_BASIC}[ \t]*)?{_ENHANCED}|#{_ENHANCED}", re.MULTILINE)
_LINE_HEAD = re.compile(rf"^[ \t]*(?:{_BASIC}[ \t]*)?(?:{_ENHANCED})?", re.MULTILINE)
_ADDRESS = re.compile(r"[^\s<>\"(),;:]{1,64}@[^\s<>\"(),;:]*")


@frozen
class Reply:
    """What a relay said, or that it said nothing: then `code` is None and `text` tells what happened instead.

    `enhanced` is the RFC 3463 code ("5.1.1"); its class may differ from that of `code` (421 with 5.7.32).
    Stage `eod` is after the final dot. `context` names the peer where it is known ("microsoft 365").
    """

    stage: Stage = field(validator=validators.in_(STAGES))
    code: int | None
    enhanced: str | None
    text: str
    context: str | None = None

    @classmethod
    def parse(cls, stage: Stage, code: int | None, text: str) -> Self:
        """The reply with the enhanced code of its text, whose lines may or may not carry the basic code."""
        text = scrub(text)[:TEXT_LIMIT]
        return cls(stage, code, enhanced_code(text), text)

    @classmethod
    def lost(cls, stage: Stage, why: str) -> Self:
        """No reply was read at `stage`."""
        return cls(stage, None, None, scrub(why)[:TEXT_LIMIT])

    @property
    def words(self) -> str:
        """The text as rules look at it: one line, lower case, no accents, no codes at line starts.

        Without addresses too: what people are called (`no.relay@...`) is no part of what happened.
        """
        plain = _ADDRESS.sub(" ", _LINE_HEAD.sub("", self.text[:TEXT_LIMIT]))
        letters = unicodedata.normalize("NFKD", plain)
        bare = "".join(c for c in letters if not unicodedata.combining(c))
        return " ".join(bare.casefold().split())[:TEXT_LIMIT]


def enhanced_code(text: str) -> str | None:
    """The first enhanced status code in a reply's text, "5.1.1"; None where there is none."""
    found = _ENHANCED_AT.search(text)
    return ".".join(part for part in found.groups() if part is not None) if found else None
