"""Looks at where the tags of a letter stand in its HTML, to tell whether it can be converted before it is rendered."""

import re
from html.parser import HTMLParser

from attrs import frozen

from .tags import Part

STAND_IN = re.compile("\ue000(\\d+)\ue001")
"""What stands for the tag with that number; two characters for private use that no letter contains."""

_VOID = frozenset(
    {*("area", "base", "br", "col", "embed", "hr", "img", "input"), *("link", "meta", "source", "track", "wbr")}
)
# Where text is moved out of (tables), or is more than text to the converters (lists count, head is dropped).
_UNLIKE_TEXT = frozenset(
    {
        *("table", "tbody", "thead", "tfoot", "tr", "colgroup", "select", "head", "title", "style", "script"),
        *("textarea", "noscript", "template", "svg"),
    }
)
_COUNTED = frozenset({"ol", "ul", "dl"})
_VALUE_ATTRIBUTES = frozenset({"href", "src", "alt", "title"})
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
# Selectors that look at values, at siblings, or at what is missing.
_BY_VALUE = re.compile(r"\[|:empty")
_BY_PLACE = re.compile(r"[+~]|:(?:first|last|nth|only|not|has)")


@frozen
class Finding:
    """Whether the conversion of the source is the conversion of every mail made of it."""

    text_is_fixed: bool
    style_is_fixed: bool


def survey(stamped: str, parts: tuple[Part, ...]) -> Finding:
    """`stamped` is the source with its tags replaced by stand-ins, numbered as in `parts`."""
    surveyor = _Surveyor(parts)
    surveyor.feed(stamped)
    surveyor.close()
    return surveyor.finding()


@frozen
class _Opened:
    """A block that has begun, and the elements around it."""

    word: str
    inside: tuple[int, ...]


class _Surveyor(HTMLParser):
    """Keeps the stack of open elements; every doubt makes the answer no."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(convert_charrefs=False)
        self._parts = parts
        self._sound = True
        self._elements: list[tuple[str, int]] = []
        self._count = 0
        self._blocks: list[_Opened] = []
        self._has_blocks = False
        self._has_frame = False
        self._has_loose_tags = False
        self._styles: list[str] = []

    def finding(self) -> Finding:
        sound = self._sound and not self._blocks and not (self._has_frame and self._has_loose_tags)
        style = "".join(self._styles)
        by_place = self._has_blocks and _BY_PLACE.search(style) is not None
        return Finding(sound, sound and not by_place and _BY_VALUE.search(style) is None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        bare = _QUOTED.sub("", self.get_starttag_text() or "")
        unusual = [value for name, value in attrs if name not in _VALUE_ATTRIBUTES]
        if STAND_IN.search(bare) or any(STAND_IN.search(value or "") for value in unusual):
            self._sound = False
        for _, value in attrs:
            self._check_value(value or "")
        self._has_frame |= tag in ("html", "head", "body")
        if tag not in _VOID:
            self._count += 1
            self._elements.append((tag, self._count))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        names = [name for name, _ in self._elements]
        if tag in names:
            del self._elements[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        around = [name for name, _ in self._elements]
        if "style" in around:
            self._styles.append(data)
        for found in STAND_IN.finditer(data):
            self._check_place(self._parts[int(found[1])], around)

    def handle_comment(self, data: str) -> None:
        for found in STAND_IN.finditer(data):
            self._sound &= self._parts[int(found[1])].kind == "expression"

    def handle_decl(self, decl: str) -> None:
        self._refuse_in(decl)

    def unknown_decl(self, data: str) -> None:
        self._refuse_in(data)

    def handle_pi(self, data: str) -> None:
        self._refuse_in(data)

    def _refuse_in(self, text: str) -> None:
        self._sound &= STAND_IN.search(text) is None

    def _check_value(self, value: str) -> None:
        """A block in an attribute has to begin and end there."""
        depth = len(self._blocks)
        for found in STAND_IN.finditer(value):
            part = self._parts[int(found[1])]
            if part.kind == "statement":
                self._follow(part, ())
        self._sound &= len(self._blocks) == depth

    def _check_place(self, part: Part, around: list[str]) -> None:
        parent = around[-1] if around else ""
        if part.kind == "expression" and parent == "title":
            return
        self._has_loose_tags |= "body" not in around
        if parent in _UNLIKE_TEXT or "style" in around or "script" in around:
            self._sound = False
        if part.kind == "statement":
            self._has_blocks = True
            self._sound &= parent not in _COUNTED
            self._follow(part, tuple(number for _, number in self._elements))

    def _follow(self, part: Part, inside: tuple[int, ...]) -> None:
        """A block's beginning, branches and end have to stand in the same element."""
        words = [token.text for token in part.tokens]
        match words[0]:
            case "if" | "for":
                self._blocks.append(_Opened(words[0], inside))
            case "else" | "elif":
                self._sound &= bool(self._blocks) and self._blocks[-1].inside == inside
            case "endif" | "endfor":
                self._sound &= bool(self._blocks) and self._blocks.pop().inside == inside
            case _:
                # What `set` captures is put somewhere else.
                self._sound &= words[0] == "set" and words[2:3] == ["="]
