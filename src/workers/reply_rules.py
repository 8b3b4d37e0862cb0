"""One row of the reply tables: when it holds, and what it then says."""

import re
from typing import Literal

from attrs import frozen

from .reply import Reply

Kind = Literal["success", "retry", "rate_limited", "permanent_recipient", "permanent_batch", "unknown"]
Scope = Literal["recipient", "message", "session", "sender", "ip", "destination"]

_PARTS = re.compile(r"[245]\.([0-9]{1,3})\.([0-9]{1,3})")


@frozen
class Outcome:
    """What a reply means; see `Verdict`, which adds where it came from."""

    kind: Kind
    scope: Scope
    suppress: bool = False
    alert: bool = False
    greylisted: bool = False
    quota: bool = False


def retry(scope: Scope, *, alert: bool = False, greylisted: bool = False) -> Outcome:
    return Outcome("retry", scope, alert=alert, greylisted=greylisted)


def slow(scope: Scope, *, alert: bool = False) -> Outcome:
    return Outcome("rate_limited", scope, alert=alert)


def used_up() -> Outcome:
    """The sender's quota, of a day mostly: nothing of it leaves for hours, and nobody is to blame."""
    return Outcome("rate_limited", "sender", alert=True, quota=True)


def ended(scope: Scope = "recipient") -> Outcome:
    """This delivery is over, and that proves nothing about the address."""
    return Outcome("permanent_recipient", scope)


def dead() -> Outcome:
    """The address is proven dead: suppress it."""
    return Outcome("permanent_recipient", "recipient", suppress=True)


def batch(scope: Scope) -> Outcome:
    """Every other message of this scope would fail likewise: a person must look, no recipient is to blame."""
    return Outcome("permanent_batch", scope, alert=True)


@frozen
class Rule:
    """Conditions, and what holds for 4xx (`soft`) and for 5xx (`hard`) when all of them are met.

    An absent condition is always met; an absent outcome leaves the reply to the rules below. The class digit
    of an enhanced code has no say: the basic code rules whether to try again, the enhanced one tells why.
    """

    soft: Outcome | None
    hard: Outcome | None
    text: re.Pattern[str] | None
    unless: re.Pattern[str] | None
    enhanced: tuple[tuple[int, int, int], ...]
    codes: frozenset[int]
    stages: frozenset[str]
    context: str

    def outcome(self, reply: Reply, words: str) -> Outcome | None:
        column = self.hard if reply.code is not None and 500 <= reply.code < 600 else self.soft
        return column if column is not None and self._holds(reply, words) else None

    def _holds(self, reply: Reply, words: str) -> bool:
        return (
            (not self.stages or reply.stage in self.stages)
            and (not self.codes or reply.code in self.codes)
            and (not self.enhanced or self._names(reply.enhanced))
            and self.context in (reply.context or "").casefold()
            and (self.text is None or self.text.search(words) is not None)
            and (self.unless is None or self.unless.search(words) is None)
        )

    def _names(self, enhanced: str | None) -> bool:
        parts = _PARTS.fullmatch(enhanced or "")
        if parts is None:
            return False
        subject, detail = int(parts[1]), int(parts[2])
        return any(subject == of and low <= detail <= high for of, low, high in self.enhanced)


def rule(
    *,
    soft: Outcome | None = None,
    hard: Outcome | None = None,
    text: str | None = None,
    unless: str | None = None,
    enhanced: str = "",
    codes: str = "",
    stages: str = "",
    context: str = "",
) -> Rule:
    """A row as the tables write it: lists are words with spaces between, `enhanced` is "1.1 7.20-30 6.*".

    `text` and `unless` are regular expressions, searched in `Reply.words`.
    """
    return Rule(
        soft,
        hard,
        re.compile(text) if text else None,
        re.compile(unless) if unless else None,
        tuple(_range(one) for one in enhanced.split()),
        frozenset(int(one) for one in codes.split()),
        frozenset(stages.split()),
        context,
    )


def _range(one: str) -> tuple[int, int, int]:
    subject, detail = one.split(".")
    low, _, high = ("0-999" if detail == "*" else detail).partition("-")
    return int(subject), int(low), int(high or low)
