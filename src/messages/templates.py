"""Templates: compiled once, rendered for each recipient in MiniJinja's sandbox."""

import html
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import minijinja
from attrs import field, frozen

from . import usage
from .addresses import clean_text
from .sandbox import FILTERS, read
from .tags import Part, TemplateError

__all__ = ["Kind", "SafeHtml", "Template", "TemplateError"]

Kind = Literal["html", "text", "subject"]
"""`html` escapes what it is given; the others do not."""

SIZE_LIMIT = 10_000_000
"""Bytes of UTF-8, of a source and of what it renders to."""
SUBJECT_LIMIT = 10_000
"""Characters in the source of a subject; what it renders to has to fit into a header line."""
FUEL = 250_000
"""Steps of MiniJinja; 64 bytes of text count as one, so SIZE_LIMIT takes 160,000 of them."""

_ESCAPED_SLASH = "&#x2f;"


class SafeHtml:
    """A text that is escaped already where HTML is rendered: our own links, nobody's data."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.markup = minijinja.safe(html.escape(text))


class _Fields(Mapping[str, Any]):
    """Merge data as a template sees it: read-only, without the methods of a dict; null is a missing value."""

    __slots__ = ("_data",)

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def __getitem__(self, name: str) -> Any:
        value = self._data[name]
        if value is None:
            raise KeyError(name)
        return _shield(value)

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in self._data.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __str__(self) -> str:
        return ", ".join(self)


@frozen
class Template:
    """A template ready to render."""

    kind: Kind
    parts: tuple[Part, ...] = field(repr=False)
    required: frozenset[str]
    """The names it cannot do without, those taken as `data["First name"]` among them."""
    _variables: frozenset[str] = field(repr=False)
    _taken: tuple[str, ...] = field(repr=False)
    _environment: minijinja.Environment = field(repr=False, eq=False)

    @classmethod
    def compile(cls, source: str, kind: Kind) -> "Template":
        """Raises TemplateError with line and what."""
        source = clean_text(source)
        _check_size(source, kind)
        parts = read(source)
        environment = _environment(kind)
        try:
            environment.add_template(kind, source)
        except minijinja.TemplateError as error:
            raise TemplateError(error.detail or error.message, error.line) from None
        # MiniJinja knows about scopes, and overlooks `name[1:]` and what a filter after `set` takes; the tags
        # know no scopes. A local name that is given too does no harm: the inner one wins.
        taken = usage.operands(parts)
        undeclared = frozenset(environment.undeclared_variables_in_template(kind)) - usage.OWN
        if not undeclared <= taken:
            raise TemplateError("tags that cannot be told from text with certainty")
        names = undeclared | (taken - usage.bound(parts))
        required = (names - {"data"} | usage.keys_of_data(parts)) - usage.guarded(parts)
        return cls(kind, parts, required, names, tuple(sorted(taken)), environment)

    def variables(self) -> frozenset[str]:
        """The top-level names that the template takes from its values, `data` itself among them."""
        return self._variables

    def render(self, values: Mapping[str, Any]) -> str:
        """Raises TemplateError, whose text quotes the template and nothing of the values."""
        given = {name: self._given(values[name]) for name in self._taken if values.get(name) is not None}
        try:
            text = self._environment.render_template(self.kind, **given)
        except minijinja.TemplateError as error:
            raise self._explain(error, given) from None
        if self.kind == "html":
            # MiniJinja writes `/` of a value as an entity. It need not, and filters take `https:&#x2f;` for spam.
            text = text.replace(_ESCAPED_SLASH, "/")
        if len(text) > SIZE_LIMIT // 4 and len(text.encode()) > SIZE_LIMIT:
            raise TemplateError(f"renders to more than {SIZE_LIMIT:,} bytes")
        return text

    def _given(self, value: Any) -> Any:
        if type(value) is str:
            return value
        if isinstance(value, SafeHtml):
            return value.markup if self.kind == "html" else value.text
        return _shield(value)

    def _explain(self, error: minijinja.TemplateError, given: Mapping[str, Any]) -> TemplateError:
        # MiniJinja's own sentence may quote a value; its line is of no use once styles were moved.
        match error.kind:
            case "UndefinedError":
                missing = sorted((self._variables & self.required) - given.keys())
                what = " or ".join(f"`{name}`" for name in missing) or self._excerpt(error)
                return TemplateError(f"no value for {what}")
            case "OutOfFuel":
                return TemplateError("does too much: a loop too long, or too much text")
            case _:
                return TemplateError(f"{self._excerpt(error)} cannot be computed from the values given")

    def _excerpt(self, error: minijinja.TemplateError) -> str:
        if error.range is None:
            return "an expression"
        start, end = error.range
        source = "".join(part.source for part in self.parts).encode()
        return f"`{source[start:end].decode(errors='replace')[:60]}`"


def _check_size(source: str, kind: Kind) -> None:
    if kind == "subject" and len(source) > SUBJECT_LIMIT:
        raise TemplateError(f"{len(source):,} characters, at most {SUBJECT_LIMIT:,} are allowed in a subject")
    if len(source) > SIZE_LIMIT or len(source.encode()) > SIZE_LIMIT:
        raise TemplateError(f"more than {SIZE_LIMIT:,} bytes")


def _environment(kind: Kind) -> minijinja.Environment:
    environment = minijinja.Environment(
        fuel=FUEL,
        undefined_behavior="strict",
        auto_escape_callback=lambda _: kind == "html",
        keep_trailing_newline=True,
        # Without them strings have no methods; with `debug` errors would quote the recipient's values.
        pycompat=False,
        debug=False,
    )
    # The sandbox refuses the names of these; here nothing is left to find in case it is ever fooled.
    for name in ("debug", "dict", "namespace", "cycler", "joiner", "lipsum", "now", "randrange"):
        environment.remove_global(name)
    for name in _UNSAFE_FILTERS - FILTERS:
        environment.remove_filter(name)
    return environment


# They have a clock or chance, walk attributes, multiply lists, or take memory that fuel does not count.
_UNSAFE_FILTERS = frozenset(
    {
        *("attr", "batch", "chain", "dictsort", "groupby", "map", "pprint", "random", "reject", "rejectattr"),
        *("select", "selectattr", "slice", "sum", "tojson", "wordwrap", "xmlattr", "zip"),
    }
)


def _shield(value: Any) -> Any:
    """The value as something without methods that change it or that make much of it."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return _Fields(value)
        case list() | tuple():
            return tuple(map(_shield, value))
        case _:
            raise TemplateError(f"a value of type {type(value).__name__} cannot be rendered")
