"""What a letter's template may say: the parts of MiniJinja that cannot cost more than they are given.

MiniJinja charges fuel for every step and every byte of text, but not for lists that hold lists, for the sums
and multiples of lists, or for what a method of a Python object does; eight lines of those take all memory, and
Rust ends the process then. So templates are read before they are compiled, and whatever could build such a
value is refused, by allow-lists: no list of variables, no dictionaries, no `*`, no calls but filters and tests.
"""

from itertools import islice
from typing import Literal

from .tags import Part, TemplateError, Token, split


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FILTERS = _words(
    "abs bool capitalize count d default e escape filesizeformat first float format indent int items join last"
    " length lines list lower max min pluralize replace reverse round safe sort split string striptags title"
    " trim truncate unique upper urlencode"
)
TESTS = _words(
    "boolean defined divisibleby endingwith eq equalto even false float ge greaterthan gt in integer iterable le"
    " lessthan lower lt mapping ne none number odd sequence startingwith string true undefined upper"
)
STATEMENTS = _words("if elif else endif for endfor set endset")
NUMERIC = frozenset({"abs", "count", "float", "int", "length", "round"})
"""Filters that give a number, whatever they take."""

KEYWORDS = _words("and or not in is if elif else for set recursive true false none True False None")
"""Names that stand for no value."""
_CONSTANTS = frozenset({"true", "false", "none", "True", "False", "None"})
TAG_LIMIT = 300
"""Tokens in one tag."""
TAGS_LIMIT = 10_000
"""Tags in one template."""


def read(source: str) -> tuple[Part, ...]:
    """The source as parts that give it back when joined. Raises TemplateError for what is not allowed."""
    parts = tuple(islice(split(source), 2 * TAGS_LIMIT + 1))
    if sum(part.kind != "text" for part in parts) > TAGS_LIMIT:
        raise TemplateError(f"more than {TAGS_LIMIT} tags")
    for part in parts:
        _check(part)
    return parts


def _check(part: Part) -> None:
    if part.kind not in ("expression", "statement"):
        return
    if len(part.tokens) > TAG_LIMIT:
        raise TemplateError(f"a tag of more than {TAG_LIMIT} words and signs", part.line)
    reader = _Reader(part)
    if part.kind == "statement":
        reader.check_statement()
    reader.check_tokens()


class _Reader:
    """Goes through the tokens of one tag and refuses the first that is not allowed."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._texts = [token.text for token in part.tokens]
        self._open: list[Literal["list", "index", "call", "group"]] = []

    def check_statement(self) -> None:
        word = self._texts[0] if self._texts else ""
        if word not in STATEMENTS:
            self._refuse(f"`{{% {word} %}}` is not available; `if`, `for`, `set` and `raw` are")

    def check_tokens(self) -> None:
        for index, token in enumerate(self._part.tokens):
            self._check_token(index, token)

    def _check_token(self, index: int, token: Token) -> None:
        if self._open and self._open[-1] == "list" and not self._may_be_listed(token):
            self._refuse("a list may hold constants only, as in `[1, 2]`")
        if token.kind != "operator":
            return self._check_word(index, token)
        match token.text:
            case "[":
                self._open.append("index" if self._may_be_indexed(index - 1) else "list")
            case "(":
                self._open.append(self._kind_of_bracket(index))
            case "]" | ")":
                if self._open:
                    self._open.pop()
            case "{" | "}":
                self._refuse("dictionaries are not available in a template")
            case "*" | "**":
                self._refuse(f"`{token.text}` is not available: multiply before, and put the result into the data")
            case "+":
                self._check_plus(index)
            case ",":
                self._check_comma(index)
            case "|":
                self._check_known(index + 1, FILTERS, "filter")
        return None

    def _check_word(self, index: int, token: Token) -> None:
        if token.text == "is" and token.kind == "name":
            skipped = 1 if self._text(index + 1) == "not" else 0
            self._check_known(index + 1 + skipped, TESTS, "test")
        # Walks along attributes, at a cost that nothing charges.
        if token.text == "attribute" and self._text(index + 1) == "=":
            self._refuse("`attribute=` is not available")

    def _may_be_listed(self, token: Token) -> bool:
        match token.kind:
            case "operator":
                return token.text in ("]", ",", "-")
            case "name":
                return token.text in _CONSTANTS
            case _:
                return True

    def _kind_of_bracket(self, index: int) -> Literal["call", "group"]:
        if not self._ends_operand(index - 1):
            return "group"
        before = self._text(index - 2)
        name = self._text(index - 1)
        is_cycle = name == "cycle" and before == "." and self._text(index - 3) == "loop"
        is_range = name == "range" and before != "."
        if before != "|" and not (self._is_test(index - 1) or is_cycle or is_range):
            self._refuse(f"`{name}(...)` is not available: only filters, tests, range and loop.cycle take brackets")
        return "call"

    def _may_be_indexed(self, index: int) -> bool:
        """A list after a test is the test's argument: `x is in [1, 2]`."""
        return self._ends_operand(index) and not self._is_test(index)

    def _is_test(self, index: int) -> bool:
        before = self._text(index - 1)
        return before == "is" or (before == "not" and self._text(index - 2) == "is")

    def _check_plus(self, index: int) -> None:
        """Of numbers, of which one must be seen to be one: the sum of two lists is a longer list."""
        if not self._number_before(index) and not self._number_after(index):
            self._refuse("`+` wants a number beside it, as in `count|int + 1`; texts are joined by `~`")

    def _number_before(self, index: int) -> bool:
        before, earlier = self._part.tokens[index - 1] if index else None, self._text(index - 2)
        if before is None:
            return False
        return (before.kind == "number" and earlier != ".") or (before.text in NUMERIC and earlier == "|")

    def _number_after(self, index: int) -> bool:
        after = self._part.tokens[index + 1] if index + 1 < len(self._texts) else None
        return after is not None and after.kind == "number" and self._text(index + 2) not in ("|", ".", "[")

    def _check_comma(self, index: int) -> None:
        inside = self._open[-1] if self._open else None
        names_of_loop = self._texts[0] == "for" and "in" not in self._texts[:index]
        if inside in ("list", "call") or (inside is None and names_of_loop):
            return
        self._refuse("a comma where no list of arguments is")

    def _check_known(self, index: int, known: frozenset[str], what: str) -> None:
        name = self._text(index)
        if name not in known:
            self._refuse(f"there is no {what} `{name}`; docs/mail.md lists those there are")

    def _ends_operand(self, index: int) -> bool:
        if index < 0:
            return False
        token = self._part.tokens[index]
        if token.kind == "name":
            # After a dot, and as a filter or test, a keyword is a name like any other.
            return token.text not in KEYWORDS or self._text(index - 1) in (".", "|") or self._is_test(index)
        return token.kind in ("string", "number") or token.text in ("]", ")")

    def _text(self, index: int) -> str:
        return self._texts[index] if 0 <= index < len(self._texts) else ""

    def _refuse(self, what: str) -> None:
        raise TemplateError(what, self._part.line)
