"""Which encoding a file of people is in, decided on all of its bytes, and the text that they make."""

import codecs
import io
import re
import shutil
import tempfile
from typing import BinaryIO

from attrs import define, frozen

from ...errors import DataError

_MEBIBYTE = 1 << 20
_PREFIX = 4096

_BOMS = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),  # begins like UTF-16, so it comes before
    (codecs.BOM_UTF32_BE, "utf-32-be", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
_NOT_TEXT = (
    (b"PK\x03\x04", "an Excel or ZIP file"),
    (b"\xd0\xcf\x11\xe0", "an Excel file"),
    (b"\x1f\x8b", "a gzip file"),
    (b"%PDF-", "a PDF file"),
)

# `surrogateescape` writes a byte that is not UTF-8 as U+DC80..U+DCFF.
_STRAY = re.compile("[\udc80-\udcff]")
# Three such bytes that spell a surrogate: somebody's UTF-8 encoder was fed half a character.
_SPELT_SURROGATE = re.compile("\udced[\udca0-\udcbf][\udc80-\udcbf]")
_CP1252 = {chr(0xDC00 + byte): bytes([byte]).decode("cp1252", "replace") for byte in range(0x80, 0x100)}


@frozen
class Encoding:
    """How to decode a file; `name` is what people are told."""

    name: str
    codec: str
    bom: int = 0
    mixed: bool = False

    def open(self, stream: BinaryIO) -> io.TextIOWrapper:
        """Line ends are kept; LF, CRLF and a lone CR all end a line. Decoding never raises."""
        stream.seek(self.bom, io.SEEK_CUR)
        errors = "surrogateescape" if self.mixed else "replace"
        return io.TextIOWrapper(stream, encoding=self.codec, errors=errors, newline="")


@define
class _Evidence:
    """What the bytes of a file say for UTF-8 and against it."""

    whole: int = 0
    strays: int = 0
    broken: bool = False

    def weigh(self, size: int, text: str) -> None:
        # Every byte beyond the first of a well-formed sequence speaks for UTF-8; strays are one byte each.
        self.whole += size - len(text)
        if _is_clean(text):
            return
        self.broken = True
        text, spelt = _SPELT_SURROGATE.subn("", text)
        self.whole += 2 * spelt
        self.strays += len(_STRAY.findall(text))


def detect(stream: BinaryIO, name: str) -> Encoding:
    """How to decode `stream` from here on; it is left where it was. Raises DataError for what is no text."""
    start = stream.tell()
    prefix = stream.read(_PREFIX)
    stream.seek(start)
    if not prefix:
        raise DataError(f"{name} is empty: a header with a column email is needed, and a line per person")
    for magic, kind in _NOT_TEXT:
        if prefix.startswith(magic):
            raise DataError(f"{name} is {kind}: save it as CSV and send that")
    encoding = _declared(prefix) or _plain_utf16(prefix) or Encoding("UTF-8", "utf-8")
    if encoding.codec == "utf-8":
        encoding = _proved(stream, encoding)
        stream.seek(start)
    return encoding


def seekable(stream: BinaryIO) -> BinaryIO:
    """The stream, or a temporary file with what a pipe had to say: the last byte may tell the encoding."""
    if stream.seekable():
        return stream
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - the reader closes it
    shutil.copyfileobj(stream, spool, _MEBIBYTE)
    spool.seek(0)
    return spool


def repair(line: str) -> str:
    """Read the bytes of `line` that are not UTF-8 as Windows-1252, and a spelt surrogate as U+FFFD."""
    if line.isascii() or not _STRAY.search(line):
        return line
    line = _SPELT_SURROGATE.sub("\ufffd", line)
    return _STRAY.sub(lambda stray: _CP1252[stray[0]], line)


def _declared(prefix: bytes) -> Encoding | None:
    for bom, codec, name in _BOMS:
        if prefix.startswith(bom):
            return Encoding(name, codec, len(bom))
    return None


def _plain_utf16(prefix: bytes) -> Encoding | None:
    """UTF-16 without a mark: a fifth of the high bytes are NUL (header, addresses), of the low ones none."""
    if b"email" in prefix.lower():
        return None
    half = len(prefix) // 2
    even, odd = prefix[0::2].count(0), prefix[1::2].count(0)
    if half and odd * 5 >= half and even * 20 < odd:
        return Encoding("UTF-16", "utf-16-le")
    if half and even * 5 >= half and odd * 20 < even:
        return Encoding("UTF-16", "utf-16-be")
    return None


def _proved(stream: BinaryIO, encoding: Encoding) -> Encoding:
    """Read everything once (0.1 s for 100 MB): the last row must not spoil a million good ones.

    UTF-8 throughout is UTF-8. Otherwise the majority decides, since both mistakes are met: an export in
    Windows-1252 may contain two bytes that look like UTF-8, and a UTF-8 file may contain a line pasted from
    elsewhere. In the second case only the stray bytes are read as Windows-1252.
    """
    evidence = _Evidence()
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    while chunk := stream.read(_MEBIBYTE):
        evidence.weigh(len(chunk), decoder.decode(chunk))
    evidence.weigh(0, decoder.decode(b"", final=True))
    if not evidence.broken:
        return encoding
    if encoding.bom or evidence.whole > evidence.strays:
        return Encoding("UTF-8 with stray Windows-1252", "utf-8", encoding.bom, mixed=True)
    return Encoding("Windows-1252", "cp1252")


def _is_clean(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
