"""The link that takes somebody off: its token, valid for ever, and the address it stands in."""

import base64
import hashlib
import hmac
import re
import struct

from attrs import field, frozen

from ..errors import DataError

_VERSION = 1
_IDS = struct.Struct(">BQQ")
_MAC_SIZE = 16
# 33 bytes are 44 characters without padding or spare bits: each token is written in one way only.
_TOKEN = re.compile(r"[A-Za-z0-9_-]{44}")


class InvalidToken(DataError):  # noqa: N818 - the name the package map fixes
    """The token is none of ours, or somebody changed it."""


def make_token(secret: bytes, campaign_id: int, delivery_id: int) -> str:
    """base64url of version, campaign and delivery (8 bytes each, big-endian) and 16 bytes of HMAC-SHA256."""
    ids = _IDS.pack(_VERSION, campaign_id, delivery_id)
    return base64.urlsafe_b64encode(ids + _mac(secret, ids)).decode("ascii")


def read_token(secret: bytes, token: str) -> tuple[int, int]:
    """Campaign and delivery. Raises InvalidToken, in a time that says nothing about the right one."""
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("not an unsubscribe token")
    data = base64.urlsafe_b64decode(token)
    ids, mac = data[: _IDS.size], data[_IDS.size :]
    if not hmac.compare_digest(mac, _mac(secret, ids)):
        raise InvalidToken("not an unsubscribe token of this installation")
    version, campaign_id, delivery_id = _IDS.unpack(ids)
    if version != _VERSION:
        raise InvalidToken("an unsubscribe token of a newer version")
    return campaign_id, delivery_id


@frozen
class UnsubscribeLinks:
    """Makes the address for one delivery: it alone says who and from what, so a plain POST is enough."""

    base_url: str
    """As in POSTLEDGER_URL, without a final slash."""
    _secret: bytes = field(repr=False)

    def url(self, campaign_id: int, delivery_id: int) -> str:
        return f"{self.base_url}/u/{make_token(self._secret, campaign_id, delivery_id)}"


def _mac(secret: bytes, data: bytes) -> bytes:
    return hmac.digest(secret, data, hashlib.sha256)[:_MAC_SIZE]
