"""Header lines: folded, encoded, and impossible to break out of."""

import base64
import re
from collections.abc import Callable, Iterator

from ..errors import DataError
from .addresses import CONTROLS, Mailbox

LINE_LIMIT = 998
"""Octets in a line without its end (RFC 5322 2.1.1); 78 should not be passed."""
FOLD_AT = 76
"""Octets in a line with encoded words (RFC 2047 2), and where we fold everything."""
_WORD_LIMIT = 75
_WORD_FRAME = len("=?utf-8?q?") + len("?=")

_ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?: [A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_UNENCODABLE = re.compile("[\ud800-\udfff]")
# What may stand unencoded in a Q word anywhere, in a display name too (RFC 2047 5.3).
_Q_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!*+-/")
_Q = [chr(byte) if byte in _Q_SAFE else "_" if byte == 0x20 else f"={byte:02X}" for byte in range(256)]


class HeaderError(DataError):
    """A header that cannot be written; the text names the header and repeats nothing of its value."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


def unstructured(field: str, value: str) -> str:
    """A line of free text, such as a subject, with its CRLF. Raises HeaderError."""
    refuse_controls(field, value)
    if len(value) > LINE_LIMIT:
        raise HeaderError(field, f"{len(value)} characters, at most {LINE_LIMIT} are allowed")
    return f"{field}: {_text(value, len(field) + 2)}\r\n"


def mailbox(field: str, box: Mailbox) -> str:
    """A line with one address, named or not, with its CRLF. Raises HeaderError."""
    refuse_controls(field, box.address)
    if not box.address.isascii() or len(box.address) > LINE_LIMIT - len(field) - 4:
        raise HeaderError(field, "not an address in normal form")
    if not box.name:
        return f"{field}: {box.address}\r\n"
    refuse_controls(field, box.name)
    if len(box.name) > LINE_LIMIT:
        raise HeaderError(field, f"a name of {len(box.name)} characters, at most {LINE_LIMIT} are allowed")
    start = f"{field}: {_phrase(box.name, len(field) + 2)}"
    last = start.rpartition("\n")[2]
    gap = " " if len(last) + len(box.address) + 3 <= FOLD_AT else "\r\n "
    return f"{start}{gap}<{box.address}>\r\n"


def verbatim(field: str, value: str) -> str:
    """A line that is neither folded nor encoded, for values that readers take literally. Raises HeaderError.

    `email.policy.SMTP` makes encoded words of a long unbroken value, and the unsubscribe link no link.
    """
    refuse_controls(field, value)
    line = f"{field}: {value}"
    if not value.isascii():
        raise HeaderError(field, "letters outside ASCII, which this header cannot hold")
    if len(line) > LINE_LIMIT:
        raise HeaderError(field, f"{len(line)} characters, at most {LINE_LIMIT} fit into a line")
    return f"{line}\r\n"


def refuse_controls(field: str, value: str) -> None:
    """Line breaks would let a value write headers of its own; refused, never stripped silently."""
    if found := CONTROLS.search(value):
        kind = "a line break" if found[0] in "\r\n" else f"the control character U+{ord(found[0]):04X}"
        raise HeaderError(field, f"{kind} in it")
    if _UNENCODABLE.search(value):
        raise HeaderError(field, "half of a surrogate pair in it")


def _text(value: str, indent: int) -> str:
    plain = value.isascii() and "=?" not in value and value == value.strip(" ")
    if plain and indent + len(value) <= FOLD_AT:
        return value
    folded = _fold(value, indent) if plain and "  " not in value else None
    return folded or _encode(value, indent)


def _phrase(name: str, indent: int) -> str:
    if not name.isascii() or "=?" in name or indent + len(name) > FOLD_AT - 2:
        return _encode(name, indent)
    if _ATOMS.fullmatch(name):
        return name
    return '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def _fold(value: str, indent: int) -> str | None:
    """Broken at spaces; None where a word is too long for a line."""
    lines: list[str] = []
    line, room = "", FOLD_AT - indent
    for word in value.split(" "):
        if line and len(line) + 1 + len(word) > room:
            lines.append(line)
            line, room = word, FOLD_AT - 1
        else:
            line = f"{line} {word}" if line else word
        if len(line) > room:
            return None
    return "\r\n ".join([*lines, line])


def _encode(value: str, indent: int) -> str:
    """As encoded words of whole characters, in the shorter of the two encodings."""
    data = value.encode()
    in_q = sum(len(_Q[byte]) for byte in data)
    in_b = (len(data) + 2) // 3 * 4
    return "\r\n ".join(_words(value, indent, _q_word if in_q <= in_b else _b_word))


def _q_word(text: str) -> str:
    return "".join([_Q[byte] for byte in text.encode()])


def _b_word(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _words(value: str, indent: int, encode: Callable[[str], str]) -> Iterator[str]:
    letter = "q" if encode is _q_word else "b"
    room = min(_WORD_LIMIT, FOLD_AT - indent) - _WORD_FRAME
    start = 0
    while start < len(value):
        end = _fitting(value, start, room, encode)
        yield f"=?utf-8?{letter}?{encode(value[start:end])}?="
        start, room = end, _WORD_LIMIT - _WORD_FRAME


def _fitting(value: str, start: int, room: int, encode: Callable[[str], str]) -> int:
    """The end of the longest stretch of whole characters that fits; at least one character."""
    low, high = start + 1, min(len(value), start + room)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(encode(value[start:middle])) <= room else (low, middle - 1)
    return low
