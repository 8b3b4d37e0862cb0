"""A strict reader of raw mail, written from the RFCs and apart from the standard library's."""

import base64
import quopri
import re
from collections.abc import Iterator

WORD = re.compile(r"=\?utf-8\?([qb])\?([!->@-~]*)\?=")


def lines_of(content: bytes) -> list[bytes]:
    """Every line ends in CRLF, and neither half stands alone."""
    assert content.endswith(b"\r\n")
    lines = content[:-2].split(b"\r\n")
    assert not any(b"\r" in line or b"\n" in line for line in lines)
    return lines


def check_raw(content: bytes) -> None:
    """What every relay has to take: seven bits, CRLF, no NUL, no long line."""
    assert content.isascii()
    assert b"\x00" not in content
    head, body = split_head(content)
    assert max(map(len, lines_of(head))) <= 998
    assert max(map(len, lines_of(body)), default=0) <= 76


def split_head(content: bytes) -> tuple[bytes, bytes]:
    head, _, body = content.partition(b"\r\n\r\n")
    return head + b"\r\n", body


def raw_headers(head: bytes) -> list[tuple[str, str]]:
    """Names and unfolded values; refuses anything that is no header line."""
    logical: list[str] = []
    for line in lines_of(head):
        if line[:1] in b" \t" and line:
            assert line.strip(), "a line of white space only"
            logical[-1] += line.decode("ascii")
        else:
            assert re.match(rb"[!-9;-~]+: ?", line), line
            logical.append(line.decode("ascii"))
    return [(name, value.removeprefix(" ")) for name, _, value in (line.partition(":") for line in logical)]


def header(content: bytes, name: str) -> str:
    """The one header of that name, unfolded, not decoded."""
    found = [value for key, value in raw_headers(split_head(content)[0]) if key.lower() == name.lower()]
    assert len(found) == 1, (name, found)
    return found[0]


def decode_words(value: str) -> str:
    """RFC 2047: white space between two encoded words is not part of the text."""
    for word in WORD.finditer(value):
        assert len(word[0]) <= 75
    joined = re.sub(r"(\?=)\s+(?==\?utf-8\?)", r"\1", value)
    return WORD.sub(lambda word: _decoded(word[1], word[2]), joined)


def _decoded(encoding: str, text: str) -> str:
    """Each word alone is whole characters: decoding is strict."""
    if encoding == "b":
        return base64.b64decode(text, validate=True).decode()
    assert re.fullmatch(r"(?:[A-Za-z0-9!*+/_-]|=[0-9A-F]{2})*", text), text
    return quopri.decodestring(text.replace("_", " ").encode()).decode()


def parts(content: bytes) -> Iterator[tuple[str, str]]:
    """Type and decoded text, with LF, of each part of a multipart/alternative, or of the only one."""
    head, body = split_head(content)
    kind = header(content, "content-type")
    boundary = re.fullmatch(r'multipart/alternative; boundary="([^"]{1,70})"', kind)
    if boundary is None:
        yield _part(head, body)
        return
    pieces = (b"\r\n" + body).split(b"\r\n--" + boundary[1].encode())
    assert pieces[0] == b""
    assert pieces[-1] == b"--\r\n"
    for piece in pieces[1:-1]:
        assert piece.startswith(b"\r\n")
        yield _part(*split_head(piece[2:]))


def _part(head: bytes, body: bytes) -> tuple[str, str]:
    fields = {name.lower(): value for name, value in raw_headers(head)}
    decode = {"base64": base64.b64decode, "quoted-printable": quopri.decodestring}
    data = decode[fields["content-transfer-encoding"]](body)
    kind, _, charset = fields["content-type"].partition("; ")
    assert charset == 'charset="utf-8"'
    return kind, data.decode().replace("\r\n", "\n")
