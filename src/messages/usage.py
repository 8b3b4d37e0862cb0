"""What a template takes from the data it is given, read from its tags."""

import re
from collections.abc import Iterator

from .sandbox import KEYWORDS
from .tags import Part, Token

_NOTHING = Token("end", "")
OWN = frozenset({"loop", "range"})
"""What MiniJinja itself gives."""


def operands(parts: tuple[Part, ...]) -> frozenset[str]:
    """Every name that stands for a value, names made by `for` and `set` included."""
    return frozenset(walk.word for walk in _walks(parts) if walk.is_operand()) - OWN


def bound(parts: tuple[Part, ...]) -> frozenset[str]:
    """The names that `for` and `set` make."""
    return frozenset(name for part in parts if part.kind == "statement" for name in _targets(part.tokens))


def keys_of_data(parts: tuple[Part, ...]) -> frozenset[str]:
    """The headers taken as `data["First name"]` or `data.city`."""
    return frozenset(key for walk in _walks(parts) if (key := walk.key()) is not None)


def guarded(parts: tuple[Part, ...]) -> frozenset[str]:
    """The names and headers that the template can do without: it has a default for them, or asks."""
    return frozenset(walk.key() or walk.word for walk in _walks(parts) if walk.is_guarded())


class _Walk:
    """One token of a tag, and what stands around it."""

    def __init__(self, tokens: tuple[Token, ...], index: int) -> None:
        self._tokens = tokens
        self._index = index
        self.word = tokens[index].text

    def is_operand(self) -> bool:
        token, before, after = self._at(0), self._at(-1).text, self._at(1).text
        if token.kind != "name" or token.text in KEYWORDS or before in (".", "|", "is") or after == "=":
            return False
        return not (before == "not" and self._at(-2).text == "is") and not self._is_statement()

    def key(self) -> str | None:
        """The header, where this is `data` followed by one."""
        if self.word != "data" or not self.is_operand():
            return None
        match [self._at(1).text, self._at(2).kind, self._at(3).text]:
            case [".", "name", _]:
                return self._at(2).text
            case ["[", "string", "]"]:
                return re.sub(r"\\(.)", r"\1", self._at(2).text[1:-1], flags=re.DOTALL)
            case _:
                return None

    def is_guarded(self) -> bool:
        if not self.is_operand():
            return False
        end = 1 if self.key() is None else (3 if self._at(1).text == "." else 4)
        match [self._at(end).text, self._at(end + 1).text, self._at(end + 2).text]:
            case (
                ["|", "default" | "d", _] | ["is", "defined" | "undefined", _] | ["is", "not", "defined" | "undefined"]
            ):
                return True
            case _:
                return False

    def _is_statement(self) -> bool:
        return self._index == 0 and self.word in ("endif", "endfor", "endset")

    def _at(self, offset: int) -> Token:
        index = self._index + offset
        return self._tokens[index] if 0 <= index < len(self._tokens) else _NOTHING


def _walks(parts: tuple[Part, ...]) -> Iterator[_Walk]:
    for part in parts:
        for index in range(len(part.tokens)):
            yield _Walk(part.tokens, index)


def _targets(tokens: tuple[Token, ...]) -> Iterator[str]:
    match [token.text for token in tokens]:
        case ["set", name, *_]:
            yield name
        case ["for", *rest] if "in" in rest:
            yield from (name for name in rest[: rest.index("in")] if name != ",")
