"""What a provider's reply means for a delivery: the interpreter of the tables in `reply_tables.py`."""

from functools import lru_cache

from attrs import frozen

from .reply import Reply, Stage
from .reply_rules import Kind, Outcome, Rule, Scope, retry
from .reply_tables import RULES, SILENT_RULES

__all__ = ["Kind", "Reply", "Scope", "Stage", "Verdict", "classify"]


@frozen
class Verdict:
    """What follows from a reply.

    `success` before the final dot says that a step was granted; only `accepted` says that the mail was taken.
    `suppress` is set where the reply proves a dead address, `alert` where a person should hear of it,
    `greylisted` where the first retry has to wait five minutes. `code` is what events record: "550 5.1.1",
    or "none" where no reply was read.
    """

    kind: Kind
    scope: Scope
    suppress: bool
    alert: bool
    code: str
    greylisted: bool = False
    accepted: bool = False


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
    )


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
