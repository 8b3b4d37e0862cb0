"""The one vocabulary into which every provider's reports are read, and what reading them has in common."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parseaddr
from enum import StrEnum
from typing import Any, Final, TypeAlias

import orjson
from attrs import frozen

from ...events.text import scrub

Json: TypeAlias = dict[str, Any]

WINDOW_IN: Final = timedelta(hours=26)
"""How old a signature may be: providers go on trying for a day."""

TEXT_LIMIT: Final = 300
"""Characters of an id that are kept; the longest known has 100."""

LONG: Final = 65_536
"""The same of links and answers, which are told apart to the end."""


class Kind(StrEnum):
    """What was said. The first seven are what everybody knows; the others say less, or speak to us alone."""

    DELIVERED = "delivered"
    DEFERRED = "deferred"
    BOUNCED = "bounced"
    OPENED = "opened"
    CLICKED = "clicked"
    COMPLAINED = "complained"
    UNSUBSCRIBED = "unsubscribed"
    ACCEPTED = "accepted"
    """Queued at the provider."""
    DROPPED = "dropped"
    """Never tried: the provider's own suppression list, or its policy."""
    FAILED = "failed"
    """A fault of the message or of the configuration."""
    RESUBSCRIBED = "resubscribed"
    AUTOREPLY = "autoreply"
    CONTROL = "control"
    """For the receiver of the webhook, about no mail."""
    UNKNOWN = "unknown"


class BounceClass(StrEnum):
    """Why a mail came back."""

    HARD = "hard"
    """The mailbox or the domain does not exist."""
    SOFT = "soft"
    """It may work another day."""
    BLOCK = "block"
    """Refused for our reputation, the content or the authentication: nothing about the recipient."""
    UNDETERMINED = "undetermined"


class Reason(StrEnum):
    """Why nobody may write to the address from now on."""

    BOUNCED = "bounced"
    COMPLAINED = "complained"
    UNSUBSCRIBED = "unsubscribed"


class Scope(StrEnum):
    """What is not to be written any more."""

    ALL = "all"
    MARKETING = "marketing"
    LIST = "list"


@frozen
class Meaning:
    """What a provider's word comes to."""

    kind: Kind
    bounce_class: BounceClass | None = None
    suppress: Reason | None = None
    scope: Scope | None = None


def bounced(kind: BounceClass, *, suppress: bool = False) -> Meaning:
    """Handed over and refused. What is dead is not written to any more."""
    reason = Reason.BOUNCED if suppress else None
    return Meaning(Kind.BOUNCED, kind, reason, Scope.ALL if suppress else None)


HARD: Final = bounced(BounceClass.HARD, suppress=True)
SOFT: Final = bounced(BounceClass.SOFT)
BLOCK: Final = bounced(BounceClass.BLOCK)
UNDETERMINED: Final = bounced(BounceClass.UNDETERMINED)
COMPLAINED: Final = Meaning(Kind.COMPLAINED, None, Reason.COMPLAINED, Scope.ALL)
UNSUBSCRIBED: Final = Meaning(Kind.UNSUBSCRIBED, None, Reason.UNSUBSCRIBED, Scope.MARKETING)
LEFT_LIST: Final = Meaning(Kind.UNSUBSCRIBED, None, Reason.UNSUBSCRIBED, Scope.LIST)
# The provider knows the address from before, and tried nothing: we learn it, but nothing bounced anew.
DROPPED: Final = Meaning(Kind.DROPPED)
DROPPED_BOUNCED: Final = Meaning(Kind.DROPPED, BounceClass.HARD, Reason.BOUNCED, Scope.ALL)
DROPPED_COMPLAINED: Final = Meaning(Kind.DROPPED, None, Reason.COMPLAINED, Scope.ALL)
DROPPED_UNSUBSCRIBED: Final = Meaning(Kind.DROPPED, None, Reason.UNSUBSCRIBED, Scope.MARKETING)
DROPPED_LEFT_LIST: Final = Meaning(Kind.DROPPED, None, Reason.UNSUBSCRIBED, Scope.LIST)
UNKNOWN: Final = Meaning(Kind.UNKNOWN)


@frozen
class Feedback:
    """One thing that a provider said of one mail and one recipient.

    `native_id` is its id for it as it stands there; `native_key` and `natural_key` are what it is known by again: the
    provider's id with what makes that unique, and what was said of whom and when. `recipient` is the bare address as
    it stands there. `delivery_ref` is our metadata; `message_id` the provider's, without brackets.
    `own` is the (campaign, delivery) to which one of both points. `machine`: the provider says whether an open or a
    click was automatic. `code` is the receiver's status, "5.1.1"; `link` where a click went.
    """

    meaning: Meaning
    recipient: str | None
    occurred_at: datetime | None
    natural_key: bytes
    native_id: str | None = None
    native_key: str | None = None
    delivery_ref: str | None = None
    message_id: str | None = None
    own: tuple[int, int] | None = None
    machine: bool | None = None
    code: str | None = None
    link: str | None = None


@frozen
class Fault:
    """An item that could not be read; `reason` repeats nothing of it."""

    reason: str


Item: TypeAlias = Feedback | Fault


@frozen
class Proof:
    """What a signature proved: when it was made, and the token that it was made for, each where there is one.

    `digest` is by what the same post is known again.
    """

    digest: bytes
    signed_at: datetime | None = None
    nonce: str | None = None


class Refused(Exception):  # noqa: N818 - what is done with the post
    """The post is not taken; `status` is what this provider must be told, `reason` what the log says."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def read_json(raw: bytes) -> Any:
    """What the bytes are in JSON. Raises ValueError.

    Half of a surrogate pair, as a text that was cut has it, is no reason to lose what stands beside it.
    """
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_object(raw: bytes) -> Json | None:
    """The JSON object that the bytes are, or None."""
    try:
        value = read_json(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def inner(of: Mapping[str, Any], *path: str) -> Json:
    """The object there, or an empty one where there is none."""
    value: Any = of
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def text(value: object, limit: int = TEXT_LIMIT) -> str | None:
    """What is a text, or a number as one, not too long; None for all else and for nothing."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        return None
    return scrub(value.strip())[:limit] or None


def texts(value: object) -> list[str]:
    """The texts in a list, or the one that stands alone."""
    return [found for one in (value if isinstance(value, list) else [value]) if (found := text(one)) is not None]


def address(value: object) -> str | None:
    """The bare address of "Name <local@domain>"."""
    found = text(value)
    return found and (parseaddr(found)[1] or None if "<" in found else found)


def epoch(value: object) -> datetime:
    """Seconds since 1970, whole or not, as a number or a text. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("a time is missing")
    try:
        return datetime.fromtimestamp(float(value), UTC)
    except (ValueError, OverflowError, OSError):
        raise ValueError("a time is no number of seconds") from None


_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?\s*(Z|[+-]\d\d:?\d\d)?", re.ASCII)


def moment(value: object) -> datetime:
    """ISO 8601 with any number of decimals, cut to microseconds; without a zone it is UTC. Raises ValueError."""
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("a time is missing, or in no known form")
    date, clock, decimals, zone = found.groups()
    fraction = (decimals or "0")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{date}T{clock}.{fraction}{'+00:00' if zone in (None, 'Z') else zone}").astimezone(
        UTC
    )


def key(*parts: object) -> bytes:
    """The digest of some values, each told apart from its neighbours."""
    return digest([None if part is None else str(part) for part in parts])


def digest(value: object) -> bytes:
    """The sha256 of what JSON can hold, however it was written."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")).digest()


_REFERENCE = re.compile(r"(\d{1,18})[.-](\d{1,18})", re.ASCII)
_MESSAGE_ID = re.compile(r"<?(\d{1,18})\.(\d{1,18})@[^@]+", re.ASCII)


def own(*references: str | None, message_ids: tuple[str | None, ...] = ()) -> tuple[int, int] | None:
    """(campaign, delivery): of the first that is ours.

    A reference is `campaign.delivery`, or with a hyphen where a dot is not allowed; our Message-ID begins with
    `delivery.campaign@`.
    """
    for reference in references:
        if reference and (found := _REFERENCE.fullmatch(reference)):
            return int(found[1]), int(found[2])
    for message_id in message_ids:
        if message_id and (found := _MESSAGE_ID.fullmatch(message_id)):
            return int(found[2]), int(found[1])
    return None
