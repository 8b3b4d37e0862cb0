"""What a provider's reply means for a delivery: the interpreter of the tables in `reply_tables.py`."""

import re
from datetime import timedelta
from functools import lru_cache

from attrs import frozen

from .reply import Reply, Stage
from .reply_rules import Kind, Outcome, Rule, Scope, retry
from .reply_tables import RULES, SILENT_RULES

_NAMED_WAIT = re.compile(
    r"\b(?:again|retry|wait|resumes?|resets?)\b[^0-9.;]{0,30}?\b([0-9]{1,6}) ?"
    r"(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?)\b"
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

__all__ = ["Kind", "Reply", "Scope", "Stage", "Verdict", "classify"]


@frozen
class Verdict:
    """What follows from a reply.

    `success` before the final dot says that a step was granted; only `accepted` says that the mail was taken.
    `suppress` is set where the reply proves a dead address, `alert` where a person should hear of it,
    `greylisted` where the first retry has to wait five minutes, `quota` where the sender has used its up; `retry_in` is
    the wait that the reply names, where it names one. `code` is what events record: "550 5.1.1",
    or "none" where no reply was read.
    """

    kind: Kind
    scope: Scope
    suppress: bool
    alert: bool
    code: str
    greylisted: bool = False
    accepted: bool = False
    quota: bool = False
    retry_in: timedelta | None = None


@lru_cache(maxsize=512)  # a campaign hears the same few answers again and again
def classify(reply: Reply) -> Verdict:
    """Total: every stage, code and text has a verdict; what no table knows goes by its first digit."""
    found = _outcome(reply)
    return Verdict(
        kind=found.kind,
        scope=found.scope,
        suppress=found.suppress,
        alert=found.alert,
        code=" ".join(str(part) for part in (reply.code, reply.enhanced) if part is not None) or "none",
        greylisted=found.greylisted,
        accepted=found.kind == "success" and reply.stage == "eod",
        quota=found.quota,
        retry_in=_named_wait(reply.words) if found.kind == "rate_limited" else None,
    )


def _named_wait(words: str) -> timedelta | None:
    """ "try again in 2 hours", "retry after 300 seconds": what it says, between a minute and a day."""
    found = _NAMED_WAIT.search(words)
    if found is None:
        return None
    wait = timedelta(seconds=int(found[1]) * _UNITS[found[2][0]])
    return min(max(wait, timedelta(minutes=1)), timedelta(days=1))


def _outcome(reply: Reply) -> Outcome:
    match reply.code:
        case int(code) if 200 <= code < 400:
            return _granted(reply.stage, code)
        case int(code) if 400 <= code < 600:
            return _first(RULES, reply)
    return _first(SILENT_RULES, reply)


def _granted(stage: Stage, code: int) -> Outcome:
    """2xx and 3xx: only after the dot does one take the mail; out of step, nothing is believed."""
    match stage:
        case "eod":
            return Outcome("success" if code < 300 else "unknown", "message")
        case "data":
            return Outcome("success", "session") if code == 354 else retry("session")
        case "rcpt":
            return Outcome("success", "recipient") if code < 300 else retry("session")
        case _:
            return Outcome("success", "session") if code < 300 else retry("session")


def _first(rules: tuple[Rule, ...], reply: Reply) -> Outcome:
    words = reply.words
    return next(outcome for rule in rules if (outcome := rule.outcome(reply, words)) is not None)
