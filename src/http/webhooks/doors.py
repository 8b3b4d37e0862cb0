"""One door per provider: whether it is open, and what a post proves before it is let in."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog
from attrs import frozen

from ...config import PROVIDERS, Webhooks
from ...errors import ConfigurationError, UnavailableError
from ..fetching import Fetched, NotFetched
from ..limits import Buckets
from . import mailgun, postmark, sendgrid, ses
from .vocabulary import Proof, Refused

log = structlog.get_logger(__name__)

__all__ = ["Admitted", "Doors", "Outside", "Refused"]

STALE: Mapping[str, int] = {
    mailgun.NAME: mailgun.STOP,
    sendgrid.NAME: sendgrid.NOT_OURS,
    ses.NAME: ses.NOT_OURS,
    postmark.NAME: postmark.NOT_OURS,
}
"""What is told of a signature that is too old, or stood for something else before."""

CERTIFICATES = 16
KEPT_FOR = 24 * 3600.0
"""Seconds for which a certificate is kept; SNS changes its own about once a year."""

_VERIFIERS: Mapping[str, Callable[[Mapping[str, str], bytes, Sequence[str]], Proof]] = {
    mailgun.NAME: mailgun.verify,
    sendgrid.NAME: sendgrid.verify,
    postmark.NAME: postmark.verify,
}


class Outside(Protocol):
    """Asks an address that came from outside."""

    async def fetch(self, url: str, *, hosts: Callable[[str], bool]) -> Fetched:
        """One GET. Raises NotFetched."""
        ...


@frozen
class Admitted:
    """A post that is the provider's own; `confirm` is where a subscription that it asks for is confirmed."""

    proof: Proof
    confirm: str | None = None


class Certificates:
    """The certificates of SNS by their addresses, fetched when first named and kept for a day.

    Whoever makes addresses up makes us fetch a few a minute, and no more.
    """

    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()
        self._fetches = Buckets(rate=0.2, burst=10)
        self._turn = asyncio.Lock()

    async def get(self, url: str) -> bytes:
        """Raises UnavailableError: the post is to be sent again."""
        if (kept := self._known(url)) is not None:
            return kept  # nobody waits behind the fetch of another one
        async with self._turn:
            if (kept := self._known(url)) is not None:
                return kept
            if self._fetches.take("sns"):
                raise UnavailableError("too many certificates were asked for")
            fetched = await _fetched(self._outside, url)
            self._kept[url] = (time.monotonic() + KEPT_FOR, fetched)
            while len(self._kept) > CERTIFICATES:
                self._kept.popitem(last=False)
            return fetched

    def _known(self, url: str) -> bytes | None:
        until, kept = self._kept.get(url, (0.0, b""))
        return kept if time.monotonic() < until else None

    def forget(self, url: str) -> None:
        """It was none."""
        self._kept.pop(url, None)


class Doors:
    """Those that have a key. Raises ConfigurationError for a key in no known form, which it does not repeat."""

    def __init__(self, keys: Webhooks, outside: Outside) -> None:
        self._keys: dict[str, Sequence[str]] = {name: getattr(keys, name) for name in PROVIDERS}
        self._outside = outside
        self._certificates = Certificates(outside)
        _check(keys)

    def is_open(self, provider: str) -> bool:
        """Whether the operator has said by what its posts are known."""
        return bool(self._keys[provider])

    async def admit(self, provider: str, headers: Mapping[str, str], raw: bytes) -> Admitted:
        """What the post proves. Raises Refused, or UnavailableError where that cannot be found out now."""
        if provider != ses.NAME:
            return Admitted(_VERIFIERS[provider](headers, raw, self._keys[provider]))
        envelope = ses.open_envelope(raw, self._keys[provider])
        certificate = await self._certificates.get(envelope.certificate_url)
        try:
            proof = ses.verify(raw, envelope, certificate)
        except ValueError:
            self._certificates.forget(envelope.certificate_url)
            raise UnavailableError("what SNS gave as its certificate is none") from None
        if envelope.type == "UnsubscribeConfirmation":
            # Nobody here asked for it, so it is not undone by itself: somebody has to look.
            log.error("sns_unsubscribed", topic=envelope.post["TopicArn"])
        confirms = envelope.type == "SubscriptionConfirmation"
        return Admitted(proof, envelope.subscribe_url if confirms else None)

    async def confirm(self, url: str) -> None:
        """Tells SNS that the subscription is wanted. Raises UnavailableError: it is to ask again."""
        await _fetched(self._outside, url)
        log.info("sns_subscribed")


async def _fetched(outside: Outside, url: str) -> bytes:
    try:
        answer = await outside.fetch(url, hosts=ses.is_sns_host)
    except NotFetched as error:
        raise UnavailableError(str(error)) from error
    if answer.status != 200:
        raise UnavailableError(f"SNS answered with {answer.status}")
    return answer.body


def _check(keys: Webhooks) -> None:
    checks: tuple[tuple[str, Sequence[str], Callable[[str], object], str], ...] = (
        ("sendgrid", keys.sendgrid, sendgrid.public_key, "the public key that SendGrid shows (base64)"),
        ("ses", keys.ses, _topic, "ARNs of topics, arn:aws:sns:REGION:ACCOUNT:NAME"),
        ("postmark", keys.postmark, _login, "user:password, each at least one character"),
    )
    for name, values, check, wanted in checks:
        for value in values:
            try:
                check(value)
            except ValueError:
                raise ConfigurationError(
                    f"POSTLEDGER_WEBHOOK_{name.upper()} holds something in another form: write {wanted}"
                ) from None


def _topic(value: str) -> None:
    parts = value.split(":")
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sns" or not all(parts):
        raise ValueError


def _login(value: str) -> None:
    user, _, password = value.partition(":")
    if not user or not password:
        raise ValueError
