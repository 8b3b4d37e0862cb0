"""The tags of a template: where they are, and the words and signs in them."""

import re
from collections.abc import Iterator
from typing import Literal

from attrs import frozen

from ..errors import DataError

PartKind = Literal["text", "raw", "comment", "expression", "statement"]

_OPENER = re.compile(r"\{[{%#]")
_CLOSERS = {"}}": re.compile(r"[-+]?\}\}"), "%}": re.compile(r"[-+]?%\}")}
_RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}")
_END_RAW = re.compile(r"\{%[-+]?\s*endraw\s*[-+]?%\}")
_TOKEN = re.compile(
    r"""(?P<space>\s+)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<number>\d\w*(?:\.\d\w*)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<operator>\*\*|//|==|!=|<=|>=|[-+*/%~|.,:()\[\]{}=<>])""",
    re.DOTALL | re.VERBOSE,
)


class TemplateError(DataError):
    """What is wrong with a template, and where: in which line (None: in no one line), of which field of a letter."""

    def __init__(self, what: str, line: int | None = None, field: str | None = None) -> None:
        places = [field or "", f"line {line}" if line is not None else ""]
        super().__init__(": ".join(filter(None, [*places, what])))
        self.what = what
        self.line = line
        self.field = field


@frozen
class Token:
    """A word of a tag."""

    kind: str
    text: str


@frozen
class Part:
    """A stretch of a template's source, markers included."""

    kind: PartKind
    source: str
    line: int
    tokens: tuple[Token, ...] = ()
    trims: bool = False
    """Whether it eats the white space around it (`{{-`)."""


def split(source: str) -> Iterator[Part]:
    """The source in parts that give it back when joined. Raises TemplateError where MiniJinja would lose its way."""
    at, line = 0, 1
    while at < len(source):
        part = _part_at(source, at, line)
        yield part
        at += len(part.source)
        line += part.source.count("\n")


def _part_at(source: str, at: int, line: int) -> Part:
    opener = _OPENER.search(source, at)
    if opener is None:
        return Part("text", source[at:], line)
    if opener.start() > at:
        return Part("text", source[at : opener.start()], line)
    match opener[0]:
        case "{#":
            return _comment(source, at, line)
        case "{%" if raw := _RAW.match(source, at):
            end = _END_RAW.search(source, raw.end())
            if end is None:
                raise TemplateError("`raw` is not closed by `endraw`", line)
            return Part("raw", source[at : end.end()], line)
        case "{%":
            return _tag(source, at, line, "statement", "%}")
        case _:
            return _tag(source, at, line, "expression", "}}")


def _comment(source: str, at: int, line: int) -> Part:
    end = source.find("#}", at + 2)
    if end < 0:
        # The usual cause is a style sheet without spaces, `@media print{#top{...}}`.
        raise TemplateError("`{#` begins a comment and no `#}` ends it; in a style sheet write `{ #`", line)
    return Part("comment", source[at : end + 2], line)


def _tag(source: str, start: int, line: int, kind: PartKind, closer: str) -> Part:
    end_of_tag = _CLOSERS[closer]
    trims = source[start + 2 : start + 3] in ("-", "+")
    at = start + 2 + trims
    tokens: list[Token] = []
    while (end := end_of_tag.match(source, at)) is None:
        found = _TOKEN.match(source, at)
        if found is None:
            raise TemplateError(_unreadable(source, at, closer), line + source.count("\n", start, at))
        if found.lastgroup != "space":
            tokens.append(Token(str(found.lastgroup), found[0]))
        at = found.end()
    trims = trims or len(end[0]) > len(closer)
    return Part(kind, source[start : end.end()], line, tuple(tokens), trims)


def _unreadable(source: str, at: int, closer: str) -> str:
    if at >= len(source) or source[at] in "\"'":
        return f"a tag or a quoted text is not closed before the end (`{closer}` is missing)"
    return f"unexpected character {source[at]!r} in a tag"
