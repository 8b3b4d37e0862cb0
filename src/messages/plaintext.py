"""The text alternative of a letter that has none of its own: its HTML, read, with the links kept."""

import re
from collections.abc import Mapping

from inscriptis.css_profiles import CSS_PROFILES
from inscriptis.html_engine import Inscriptis
from inscriptis.model.config import ParserConfig
from inscriptis.model.html_document_state import HtmlDocumentState
from inscriptis.model.tag import CustomHtmlTagHandlerMapping
from lxml.etree import LxmlError
from lxml.html import HTMLParser, document_fromstring

from .tags import TemplateError

# Inscriptis decodes entities that the parser has decoded already, and libxml2 those without a semicolon, so
# that `&amp;lt;` would be `<` and `?a=1&copy=2` a copyright sign. A stand-in takes each `&` through unharmed.
_AMPERSAND = re.compile(r"&(?:amp;|#38;|#x26;|(?!#?\w+;))", re.IGNORECASE)
_STAND_IN = "\ue002"
_LINK = re.compile(r" <([^<>\s]+)>")
_BLANK_LINES = re.compile(r"\n{3,}")


def to_text(html: str) -> str:
    """Layout as in a narrow browser, `words <address>` for links, `[words]` for pictures. Raises TemplateError."""
    source = _AMPERSAND.sub(_STAND_IN, html)
    # Without huge_tree everything deeper than 256 elements is lost without a word: unclosed tags add up.
    parser = HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    if not source.strip():
        return ""
    try:
        text = Inscriptis(document_fromstring(source.encode(), parser), _CONFIG).get_text()
    except LxmlError:
        return ""
    except RecursionError:
        raise TemplateError("the HTML is nested too deeply to make a text of it; give a text of its own") from None
    return tidy(text.replace(_STAND_IN, "&"))


def tidy(text: str) -> str:
    """No space at the ends of lines, no two blank lines in a row, no address said twice."""
    lines = text.replace("\u00a0", " ").split("\n")
    text = _BLANK_LINES.sub("\n\n", "\n".join(map(str.rstrip, lines)))
    return _LINK.sub(_without_repetition, text).strip("\n")


def _without_repetition(link: re.Match[str]) -> str:
    return "" if link.string.endswith(link[1], 0, link.start()) else link[0]


def _begin_link(state: HtmlDocumentState, attributes: Mapping[str, str]) -> None:
    target = attributes.get("href", "").strip()
    state.link_target = "" if target.startswith("#") else target.removeprefix("mailto:")


def _end_link(state: HtmlDocumentState) -> None:
    if state.link_target:
        state.tags[-1].write(f" <{state.link_target}>")
    state.link_target = ""


_CONFIG = ParserConfig(
    css=CSS_PROFILES["strict"],
    display_images=True,
    display_links=True,
    custom_html_tag_handler_mapping=CustomHtmlTagHandlerMapping({"a": _begin_link}, {"a": _end_link}),
)
