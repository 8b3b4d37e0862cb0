"""Amazon SES through SNS: an envelope, signed with a certificate that it names, around one event.

https://docs.aws.amazon.com/sns/latest/dg/sns-verify-signature-of-message.html
https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256

from .ses_events import read_event
from .vocabulary import (
    Fault,
    Feedback,
    Item,
    Json,
    Kind,
    Meaning,
    Proof,
    Refused,
    key,
    moment,
    read_object,
    text,
)

NAME: Final = "ses"

NOT_OURS: Final = 403
"""Any 4xx ends its tries, so nothing but what is not ours gets one."""

_HOST = re.compile(r"sns\.[a-z]{2}(?:-[a-z]+)+-\d{1,2}\.amazonaws\.com(?:\.cn)?", re.ASCII)
_PEM = re.compile(r"SimpleNotificationService-[0-9a-f]{8,64}\.pem", re.ASCII)

_SIGNED = {
    "Notification": ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"),
    "SubscriptionConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
    "UnsubscribeConfirmation": ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"),
}


@frozen
class Envelope:
    """What SNS posts, looked at before anything is believed: the topic is ours, the certificate is one of SNS."""

    post: Json
    certificate_url: str

    @property
    def type(self) -> str:
        return str(self.post["Type"])

    @property
    def subscribe_url(self) -> str:
        """Where a subscription is confirmed: on the host that has the certificates, or Refused."""
        url = self.post["SubscribeURL"]
        if not is_sns(url):
            raise Refused(NOT_OURS, "the SubscribeURL is not on a host of SNS")
        return str(url)


def is_sns_host(host: str) -> bool:
    """Whether it is the SNS of a region: exactly, since anybody may have a bucket whose name ends like that."""
    return _HOST.fullmatch(host) is not None


def is_sns(url: object) -> bool:
    """Whether an address is https on such a host: no user, no port."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and is_sns_host(parts.netloc)


def open_envelope(raw: bytes, topics: Sequence[str]) -> Envelope:
    """What is to be checked before a certificate is fetched. `topics` are the ARNs of ours. Raises Refused."""
    post = read_object(raw)
    if post is None:
        raise Refused(NOT_OURS, "the body is no JSON object")
    signed = _SIGNED.get(str(post.get("Type")))
    if signed is None:
        raw_delivery = "eventType" in post or "notificationType" in post
        hint = "it has no envelope: switch raw message delivery off" if raw_delivery else "not an envelope of SNS"
        raise Refused(NOT_OURS, hint)
    if not all(isinstance(post.get(name), str) for name in signed if name != "Subject"):
        raise Refused(NOT_OURS, "the envelope lacks what is signed")
    if post["TopicArn"] not in topics:
        raise Refused(NOT_OURS, "the topic is none of POSTLEDGER_WEBHOOK_SES")
    url = post.get("SigningCertURL")
    if not is_sns(url) or _PEM.fullmatch(str(url).removeprefix("https://").partition("/")[2]) is None:
        raise Refused(NOT_OURS, "the certificate's address is not one of SNS")
    return Envelope(post, str(url))


def verify(raw: bytes, envelope: Envelope, certificate: bytes) -> Proof:
    """The certificate is that of `envelope.certificate_url`. Raises Refused, or ValueError when it is none."""
    signer = _certificate(certificate)
    post = envelope.post
    try:
        signature = base64.b64decode(str(post.get("Signature")), validate=True)
        signed_at = moment(post["Timestamp"])
    except (binascii.Error, ValueError):
        raise Refused(NOT_OURS, "the signature or its time is in no known form") from None
    digest = {"1": SHA1(), "2": SHA256()}.get(str(post.get("SignatureVersion")))
    public = signer.public_key()
    if digest is None or not isinstance(public, rsa.RSAPublicKey):
        raise Refused(NOT_OURS, "a version of signature that is not known")
    try:
        public.verify(signature, _canonical(post), padding.PKCS1v15(), digest)
    except InvalidSignature:
        raise Refused(NOT_OURS, "the signature does not fit the certificate") from None
    if not signer.not_valid_before_utc <= signed_at <= signer.not_valid_after_utc:
        raise Refused(NOT_OURS, "the certificate was not valid at that time")
    return Proof(hashlib.sha256(raw).digest(), signed_at)


@lru_cache(maxsize=16)
def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _canonical(post: Json) -> bytes:
    """Key and value of what is signed, in the order of the keys, each on a line; the message verbatim."""
    names = [name for name in _SIGNED[post["Type"]] if isinstance(post.get(name), str)]
    return "".join(f"{name}\n{post[name]}\n" for name in names).encode("utf-8", "surrogatepass")


def parse(raw: bytes) -> tuple[Item, ...]:
    """What the envelope holds: one thing for each recipient of whom it speaks."""
    post = read_object(raw)
    if post is None:
        return (Fault("the body is no JSON object"),)
    try:
        return _read(post)
    except ValueError as error:
        return (Fault(str(error)),)


def _read(post: Json) -> tuple[Item, ...]:
    native_id = text(post.get("MessageId"))
    if post.get("Type") != "Notification":
        return (_control(native_id, post),)
    message = post.get("Message")
    event = read_object(message.encode("utf-8", "surrogatepass")) if isinstance(message, str) else None
    if event is None:
        # "Successfully validated SNS topic for Amazon SES event publishing.", when it is set up.
        return (_control(native_id, post),)
    return read_event(event, native_id)


def _control(native_id: str | None, post: Json) -> Feedback:
    at = moment(post.get("Timestamp"))
    return Feedback(
        meaning=Meaning(Kind.CONTROL),
        recipient=None,
        occurred_at=at,
        natural_key=key(NAME, "control", native_id),
        native_id=native_id,
        native_key=native_id and f"{native_id}/",
    )
