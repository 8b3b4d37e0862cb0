"""Where the links of an HTML mail are, to the character."""

import html
import re
from collections.abc import Sequence
from html.parser import HTMLParser

from attrs import frozen

_LINKING = frozenset({"a", "area"})
_NAME = re.compile(r"<[^\s/>]+")
# As the HTML standard reads a tag: quoted values may hold anything but their quote.
_ATTRIBUTE = re.compile(r"[\s/]*([^\s/>][^\s/>=]*)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]+)))?")
_CANDIDATE = re.compile(r"<(?:a|area)[\s/]|</body", re.IGNORECASE)


@frozen
class Link:
    """An `href`: `address` without entities, and the place of what stands in the source, quotes not included."""

    address: str
    start: int
    end: int


@frozen
class Found:
    """The links in their order, and where the body ends: before its last end tag, or at the end."""

    links: Sequence[Link]
    body_ends: int


def find_links(source: str) -> Found:
    """What a browser would take for links: nothing in comments, scripts or style sheets."""
    if not _CANDIDATE.search(source):
        return Found((), len(source))
    finder = _Finder(source)
    finder.feed(source)
    finder.close()
    return Found(finder.links, finder.body_ends)


class _Finder(HTMLParser):
    """Only looks: what it finds is cut out of the source, which is never written anew."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self.links: list[Link] = []
        self.body_ends = len(source)
        self._lines = [0, *(found.end() for found in re.finditer("\n", source))]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _LINKING:
            return
        address = next((value for name, value in attrs if name == "href"), None)
        place = _href(self.get_starttag_text() or "")
        # Two readings of one tag: where they differ, somebody's browser will take a third, and the link stays as it is.
        if address is not None and place is not None and html.unescape(place[0]) == address:
            at = self._at()
            self.links.append(Link(address, at + place[1], at + place[2]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag == "body":
            self.body_ends = self._at()

    def _at(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column


def _href(tag: str) -> tuple[str, int, int] | None:
    """The first `href` of a start tag as written, and its place in it."""
    name = _NAME.match(tag)
    at = name.end() if name else 0
    while (found := _ATTRIBUTE.match(tag, at)) and found.end() > at:
        if found[1].lower() == "href":
            group = next((group for group in (2, 3, 4) if found[group] is not None), None)
            return None if group is None else (found[group], found.start(group), found.end(group))
        at = found.end()
    return None
