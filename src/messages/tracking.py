"""Links and a picture that tell what readers do with a mail: their signed addresses, and where they are put in."""

import base64
import hashlib
import hmac
import html
import re
import struct
from urllib.parse import quote, urlsplit

from attrs import field, frozen

from .links import find_links
from .unsubscribe import InvalidToken

_IDS = struct.Struct(">BQQ")
_MAC_SIZE = 16
_TOKEN = re.compile(r"[A-Za-z0-9_-]{44}")
_TARGET = re.compile(r"[A-Za-z0-9_-]+")
# The first byte of what is signed; an unsubscribe token has its version there.
_OPEN, _CLICK = ord("o"), ord("c")

_WEB = re.compile(r"https?://(?=[^/?#\\])", re.IGNORECASE)
_UNUSUAL = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 3000
"""Characters of a target: servers and proxies refuse addresses of more than 8,000."""

_PIXEL = '<img src="{url}" width="1" height="1" alt="" style="display:block;border:0;width:1px;height:1px">'


@frozen
class TrackedLinks:
    """Makes a mail tell: `opens` by a picture, `clicks` by links that lead through us.

    A link's address holds its target and is signed as a whole, so it leads nowhere else, needs no table and works for
    ever.
    """

    base_url: str
    """As in POSTLEDGER_URL, without a final slash."""
    _secret: bytes = field(repr=False)
    opens: bool = False
    clicks: bool = False

    def apply(self, source: str, campaign_id: int, delivery_id: int) -> str:
        """The HTML of one mail with its links led through us, otherwise byte for byte as it was."""
        found = find_links(source)
        pieces, end = [], 0
        for link in found.links if self.clicks else ():
            target = target_of(link.address)
            if target is None or self._is_ours(target):
                continue
            through = self.click_url(campaign_id, delivery_id, target)
            pieces += [source[end : link.start], html.escape(through)]
            end = link.end
        if self.opens:
            pieces += [
                source[end : found.body_ends],
                _PIXEL.format(url=html.escape(self.open_url(campaign_id, delivery_id))),
            ]
            end = found.body_ends
        return "".join([*pieces, source[end:]])

    def open_url(self, campaign_id: int, delivery_id: int) -> str:
        """Of the picture."""
        return f"{self.base_url}/o/{_signed(self._secret, _OPEN, campaign_id, delivery_id, b'')}"

    def click_url(self, campaign_id: int, delivery_id: int, target: str) -> str:
        """Of a link to `target`, as `target_of` gives it."""
        data = target.encode("ascii")
        token = _signed(self._secret, _CLICK, campaign_id, delivery_id, data)
        return f"{self.base_url}/c/{token}/{base64.urlsafe_b64encode(data).decode('ascii').rstrip('=')}"

    def _is_ours(self, target: str) -> bool:
        return target.startswith(f"{self.base_url}/u/")


def target_of(address: str) -> str | None:
    """Where a browser would go for the address in a link; None for what is left alone: no web address, or an odd one.

    What is in ASCII stays as it is, to the byte: `%7E`, `[0]` and `;` mean something to somebody.
    """
    address = address.strip(" \t\r\n\f")
    if not _WEB.match(address) or _UNUSUAL.search(address) or len(address) > _LONGEST:
        return None
    try:
        host = urlsplit(address).netloc
        sent = "".join(one if "!" <= one <= "~" else quote(one, safe="") for one in address)
    except ValueError:  # no address at all, or a lone surrogate
        return None
    return sent if host.isascii() and " " not in host and len(sent) <= _LONGEST else None


def link_digest(target: str) -> str:
    """What the log says of a link: the beginning of the sha256 of its target, in hex."""
    return hashlib.sha256(target.encode("ascii")).hexdigest()[:32]


def read_open(secret: bytes, token: str) -> tuple[int, int]:
    """Campaign and delivery of a picture's token. Raises InvalidToken."""
    return _read(secret, _OPEN, token, b"")


def read_click(secret: bytes, token: str, target: str) -> tuple[int, int, str]:
    """Campaign, delivery and target of a link. Raises InvalidToken where it is not, to the byte, one that we made."""
    if not _TARGET.fullmatch(target):
        raise InvalidToken("not a link of ours")
    try:
        data = base64.b64decode(target + "=" * (-len(target) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise InvalidToken("not a link of ours") from None
    campaign_id, delivery_id = _read(secret, _CLICK, token, data)
    return campaign_id, delivery_id, data.decode("ascii")


def _signed(secret: bytes, kind: int, campaign_id: int, delivery_id: int, more: bytes) -> str:
    ids = _IDS.pack(kind, campaign_id, delivery_id)
    return base64.urlsafe_b64encode(ids + _mac(secret, ids + more)).decode("ascii")


def _read(secret: bytes, kind: int, token: str, more: bytes) -> tuple[int, int]:
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("not a token")
    data = base64.urlsafe_b64decode(token)
    ids, mac = data[: _IDS.size], data[_IDS.size :]
    found, campaign_id, delivery_id = _IDS.unpack(ids)
    if not hmac.compare_digest(mac, _mac(secret, ids + more)) or found != kind:
        raise InvalidToken("not a token of this installation")
    return campaign_id, delivery_id


def _mac(secret: bytes, data: bytes) -> bytes:
    return hmac.digest(secret, data, hashlib.sha256)[:_MAC_SIZE]
