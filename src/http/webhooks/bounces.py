"""Why a mail came back for good, by what the receiver answered: the reply tables of the workers, asked once more."""

from __future__ import annotations

import re

from ...workers.replies import classify
from ...workers.reply import TEXT_LIMIT, Reply, enhanced_code
from .vocabulary import BLOCK, HARD, SOFT, UNDETERMINED, Meaning

_STATUS = re.compile(r"[245]\.\d{1,3}\.\d{1,3}", re.ASCII)
_BASIC = re.compile(r"(?:[a-z-]+; ?)?([245]\d\d)(?:[ -]|$)", re.ASCII | re.IGNORECASE)
_POLICY = re.compile(r"[45]\.[67]\.")


def status_of(status: object, words: str | None) -> str | None:
    """The enhanced code ("5.1.1") where one was given, else the one that the answer begins with."""
    if isinstance(status, str) and _STATUS.fullmatch(status.strip()):
        return status.strip()
    return enhanced_code((words or "").removeprefix("smtp;").strip()[:TEXT_LIMIT])


def basic_of(code: object, words: str | None) -> int | None:
    """The reply's code where one was given, else the one that the answer begins with."""
    if isinstance(code, int) and not isinstance(code, bool) and 200 <= code < 600:
        return code
    found = _BASIC.match(words or "")
    return int(found[1]) if found else None


def final(code: int | None, status: str | None, words: str | None) -> Meaning:
    """What a refusal means after the provider has given up.

    Hard only where the reply proves that nobody is there, whatever class its digit is of: a 4.4.4 that was tried for a
    day, or a 550 that speaks of a blocklist, is told apart by the tables that the workers go by.
    """
    as_final = f"5{status[1:]}" if status else None
    verdict = classify(Reply("rcpt", 550 if code is None or code < 500 else code, as_final, (words or "")[:TEXT_LIMIT]))
    if verdict.suppress and not (status is None and code is None and not words):
        return HARD
    if (status and _POLICY.match(status)) or (verdict.kind == "permanent_batch" and verdict.scope in ("ip", "sender")):
        return BLOCK
    if status is None and code is None:
        return UNDETERMINED
    if (status or str(code)).startswith("4") or verdict.kind in ("retry", "rate_limited"):
        return SOFT
    if verdict.kind == "permanent_batch":
        return BLOCK if verdict.scope == "message" and not (status or "").startswith("5.3.") else SOFT
    return SOFT if status and status[2:4] in ("2.", "3.", "4.", "5.") else UNDETERMINED
