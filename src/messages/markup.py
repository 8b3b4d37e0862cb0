"""The HTML of a letter made ready: styles moved into its elements, and its text version.

Both cost more than all the rest of a mail, and for most letters they come out the same for everybody but for the
values filled in. So they are done once, on the source, with stand-ins for the tags - where a survey of the
source shows that this gives what the slow way (render, then convert) would give. Where it does not, the slow
way is taken for every mail.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal

import css_inline
from attrs import frozen

from .plaintext import tidy, to_text
from .sandbox import FILTERS
from .survey import STAND_IN, survey
from .tags import Part, TemplateError
from .templates import Template

_STYLED = re.compile(r"<style\b", re.IGNORECASE)
_LIVE_BRACE = re.compile(r"\{(?=[{%#])")
_PRIVATE = re.compile("[\ue000\ue001]")
# A tag that a value completes, or an entity: `<{{ x }}`, `&{{ x }};`.
_PASTED = re.compile("(?:</?|&#?\\w*)")
_SURVEY_LIMIT = 300_000
"""Characters. Three times what Gmail shows; beyond it a survey takes too long."""

# Their results are escaped in HTML and stay as they are in text; the others' differ.
_PLAIN_FILTERS = FILTERS - {"safe", "e", "escape", "striptags"}

# Nothing is ever fetched or read: a style sheet that is linked stays linked.
_INLINER = css_inline.CSSInliner(
    load_remote_stylesheets=False,
    keep_link_tags=True,
    # What cannot be moved into an element (`@media`, `:hover`) has to stay, and readers that honour it are many.
    keep_style_tags=True,
)


@frozen
class Markup:
    """Renders the HTML of a mail, and the text version if that was asked for."""

    source: Template
    """As the author wrote it; the others are made of it."""
    _html: Template
    _inlines_each: bool
    _text: Template | None
    _converts_each: bool
    _has_gaps: bool
    """Blocks of the text may come out empty, and leave blank lines behind."""

    @classmethod
    def prepare(cls, source: str, *, with_text: bool) -> "Markup":
        """Raises TemplateError."""
        plain = Template.compile(source, "html")
        stamped = _stamp(plain.parts)
        text = _text_template(stamped, plain.parts) if with_text else None
        is_styled = _STYLED.search(source) is not None
        styled = _styled_template(stamped, plain.parts) if is_styled else plain
        _try_slow_way(source, inlines=styled is None, converts=with_text and text is None)
        has_gaps = any(part.kind == "statement" for part in plain.parts)
        return cls(plain, styled or plain, styled is None, text, with_text and text is None, has_gaps)

    def render(self, values: Mapping[str, Any]) -> tuple[str, str | None]:
        """HTML and text. Raises TemplateError."""
        html = self._html.render(values)
        if self._converts_each:
            text: str | None = to_text(html)
        else:
            text = self._text.render(values) if self._text else None
            if text is not None and self._has_gaps:
                text = tidy(text)
        return (_inline(html) if self._inlines_each else html), text


def _try_slow_way(source: str, *, inlines: bool, converts: bool) -> None:
    """What fails with the source would fail for everybody: better now than then."""
    if inlines:
        _inline(source)
    if converts:
        to_text(source)


def _inline(html: str) -> str:
    try:
        return _INLINER.inline(html)
    except css_inline.InlineError:
        raise TemplateError("the style sheet in the HTML cannot be read") from None


def _stamp(parts: tuple[Part, ...]) -> str | None:
    """The source with stand-ins for its tags, equal ones alike; None where a tag does more than give its text."""
    if sum(len(part.source) for part in parts) > _SURVEY_LIMIT or any(map(_is_special, parts)):
        return None
    numbers: dict[str, int] = {}
    stand_ins = (_stand_in(numbers.setdefault(part.source, number), part) for number, part in enumerate(parts))
    stamped = "".join(stand_ins)
    return None if _PASTED.search(stamped) else stamped


def _is_special(part: Part) -> bool:
    words = [token.text for token in part.tokens]
    filters = {name for bar, name in pairwise(words) if bar == "|"}
    private = part.kind == "text" and _PRIVATE.search(part.source) is not None
    return part.kind == "raw" or part.trims or private or not filters <= _PLAIN_FILTERS


def _stand_in(number: int, part: Part) -> str:
    match part.kind:
        case "text":
            return part.source
        case "comment":
            return ""
        case _:
            return f"\ue000{number}\ue001"


def _text_template(stamped: str | None, parts: tuple[Part, ...]) -> Template | None:
    if stamped is None or not survey(stamped, parts).text_is_fixed:
        return None
    text = to_text(stamped)
    if _statements(text, parts) != _statements(stamped, parts):
        return None
    return _compiled(text, parts, "text")


def _styled_template(stamped: str | None, parts: tuple[Part, ...]) -> Template | None:
    if stamped is None or not survey(stamped, parts).style_is_fixed:
        return None
    styled = _inline(stamped)
    # Once more on what came out: html5 mends what is badly nested, and may have moved a tag out of its block.
    if STAND_IN.findall(styled) != STAND_IN.findall(stamped) or not survey(styled, parts).style_is_fixed:
        return None
    return _compiled(styled, parts, "html")


def _statements(text: str, parts: tuple[Part, ...]) -> list[str]:
    return [number for number in STAND_IN.findall(text) if parts[int(number)].kind == "statement"]


def _compiled(converted: str, parts: tuple[Part, ...], kind: Literal["html", "text"]) -> Template | None:
    # An entity such as &#123; has become a brace by now, which must not begin a tag.
    quiet = _LIVE_BRACE.sub('{{ "{" }}', converted)
    try:
        return Template.compile(STAND_IN.sub(lambda found: parts[int(found[1])].source, quiet), kind)
    except TemplateError:
        return None
