"""The exact bytes under the hashes of the log; schema.sql computes the same, and a test compares.

A field is one marker byte, 0x00 for null or 0x01 for present, and when it is present the length of its
bytes as four bytes, big-endian, and then these bytes: text in UTF-8, a whole number as its decimal text,
a salt as it is. So no two lists of fields have the same bytes, and null is not the empty text.

* The *recipient digest* is the sha256, in lower-case hex, of the fields salt, key, address, name, data,
  in this order; data is the text that PostgreSQL prints for the jsonb (`data::text`).
* A *leaf* of the log is the sha256 of one byte 0x01, the version of this format, and the fields position,
  campaign_id, delivery_id, version (null for an event without one), type, `at` in microseconds since
  1970-01-01T00:00:00Z, body (`body::text`, as stored), in this order.

These forms cannot change: every stored digest and every published root is made of them.
"""

from datetime import UTC, datetime, timedelta
from hashlib import sha256

LEAF_FORMAT = b"\x01"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def recipient_digest(salt: bytes | None, key: str, address: str | None, name: str | None, data_text: str | None) -> str:
    """Who a recipient is, sealed: the digest that `Queued` carries."""
    return sha256(_fields(salt, key, address, name, data_text)).hexdigest()


def leaf_bytes(
    position: int,
    campaign_id: int,
    delivery_id: int,
    version: int | None,
    type_: str,
    at: datetime,
    body_text: str,
) -> bytes:
    """What a leaf is the sha256 of: one row of the log. `at` must have a time zone."""
    micros = (at - _EPOCH) // _MICROSECOND
    return LEAF_FORMAT + _fields(position, campaign_id, delivery_id, version, type_, micros, body_text)


def _fields(*values: bytes | str | int | None) -> bytes:
    return b"".join(_field(value) for value in values)


def _field(value: bytes | str | int | None) -> bytes:
    match value:
        case None:
            return b"\x00"
        case bytes():
            return _present(value)
        case int() | str():
            return _present(str(value).encode())


def _present(content: bytes) -> bytes:
    return b"\x01" + len(content).to_bytes(4, "big") + content
