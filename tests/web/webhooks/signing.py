"""What providers would post: written and signed with keys of the tests' own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from postledger.config import Webhooks

MAILGUN_KEY = "key-for-tests"
LOGIN = "hooks:open sesame".replace(" ", "-")
TOPIC = "arn:aws:sns:eu-central-1:123456789012:mail"
CERTIFICATE_URL = "https://sns.eu-central-1.amazonaws.com/SimpleNotificationService-0123456789abcdef.pem"

Signed = tuple[bytes, Mapping[str, str]]
"""Body and headers."""


def now() -> datetime:
    return datetime.now(UTC)


def mailgun(event: str, *, at: datetime | None = None, token: str | None = None, **fields: Any) -> Signed:
    """One event; `fields` are those of event-data."""
    at = at or now()
    stamp, token = str(int(at.timestamp())), token or secrets.token_hex(25)
    signature = hmac.new(MAILGUN_KEY.encode(), (stamp + token).encode(), hashlib.sha256).hexdigest()
    data = {"event": event, "id": secrets.token_urlsafe(16), "timestamp": at.timestamp(), **fields}
    post = {"signature": {"timestamp": stamp, "token": token, "signature": signature}, "event-data": data}
    return json.dumps(post).encode(), {"Content-Type": "application/json"}


@cache
def _sendgrid_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def sendgrid(events: Sequence[Any], *, at: datetime | None = None, raw: bytes | None = None) -> Signed:
    body = json.dumps(list(events)).encode() if raw is None else raw
    stamp = str(int((at or now()).timestamp()))
    signature = _sendgrid_key().sign(stamp.encode() + body, ec.ECDSA(SHA256()))
    return body, {
        "Content-Type": "application/json",
        "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
        "X-Twilio-Email-Event-Webhook-Timestamp": stamp,
    }


def sendgrid_event(event: str, recipient: str, *, at: datetime | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "event": event,
        "email": recipient,
        "timestamp": int((at or now()).timestamp()),
        "sg_event_id": secrets.token_urlsafe(24),
        **fields,
    }


@cache
def _sns_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sns.amazonaws.com")])
    builder = x509.CertificateBuilder(name, name, _sns_key().public_key(), x509.random_serial_number())
    made = builder.not_valid_before(now() - timedelta(days=30)).not_valid_after(now() + timedelta(days=300))
    return made.sign(_sns_key(), SHA256()).public_bytes(Encoding.PEM)


def sns(message: Any, *, version: str = "2", type_: str = "Notification", **fields: Any) -> Signed:
    post = {
        "Type": type_,
        "MessageId": secrets.token_hex(16),
        "TopicArn": TOPIC,
        "Message": message if isinstance(message, str) else json.dumps(message) + "\n",
        "Timestamp": now().isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "SignatureVersion": version,
        "SigningCertURL": CERTIFICATE_URL,
        **fields,
    }
    names = ("Message", "MessageId", "Subject", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")
    text = "".join(f"{name}\n{post[name]}\n" for name in names if name in post)
    digest = SHA1() if version == "1" else SHA256()
    post["Signature"] = base64.b64encode(_sns_key().sign(text.encode(), padding.PKCS1v15(), digest)).decode()
    return json.dumps(post, indent=2).encode(), {"Content-Type": "text/plain; charset=UTF-8"}


def confirmation(**fields: Any) -> Signed:
    url = "https://sns.eu-central-1.amazonaws.com/?Action=ConfirmSubscription&Token=t"
    return sns("You have chosen ...", type_="SubscriptionConfirmation", **{"Token": "t", "SubscribeURL": url, **fields})


def postmark(record: Mapping[str, Any], login: str = LOGIN) -> Signed:
    shown = base64.b64encode(login.encode()).decode()
    return json.dumps(record).encode(), {"Content-Type": "application/json", "Authorization": f"Basic {shown}"}


def keys() -> Webhooks:
    """What the service is told."""
    public = _sendgrid_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Webhooks((MAILGUN_KEY,), (base64.b64encode(public).decode(),), (TOPIC,), (LOGIN,))
