"""What a verdict means for one delivery: the event to record, and what else must happen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from attrs import frozen

from .backoff import delay_in
from .replies import Verdict

RATE_LIMIT_WAIT = timedelta(seconds=60)
SESSION_WAIT = timedelta(seconds=10)
QUOTA_WAIT = timedelta(hours=1)
"""Until a campaign whose sender has used up its quota tries again, where the reply names no time."""

LONGEST_WAIT = timedelta(hours=1)
"""For a single recipient, whatever a reply asks for."""

_PAUSING_SCOPES = frozenset({"session", "sender", "ip"})


@frozen
class Policy:
    """What a campaign says of retries. `max_deferred` None: transient replies end by age alone."""

    attempts: int
    max_deferred: int | None
    give_up: timedelta


@frozen
class Try:
    """One attempt: its number from 1, and how long ago the first one was claimed."""

    attempt: int
    age: timedelta


@frozen
class Decision:
    """`type` and `body` of the event; the rest says what goes with it.

    `pause`: the campaign must pause, for this reason, and resumes by itself after `resume_in`, where that is set.
    `wait`: the whole sender must wait. `refused`: one of the replies three of which in a row pause the campaign.
    """

    type: str
    body: dict[str, Any]
    due_in: timedelta | None = None
    suppress: str | None = None
    pause: str | None = None
    wait: timedelta | None = None
    refused: bool = False
    resume_in: timedelta | None = None


def decide(verdict: Verdict, attempt: Try, policy: Policy, *, random: float, quota: bool = False) -> Decision:
    """Total over the kinds of verdict but success, whose event the sender builds (it knows what was sent).

    `quota`: the sender's is used up, whether the reply says so itself or those before it do.
    """
    burned = {"attempt": attempt.attempt, "class": verdict.kind, "code": verdict.code}
    if quota or verdict.quota:
        return _out_of_quota(verdict, attempt, policy, burned)
    match verdict.kind:
        case "retry" | "success":  # success before the dot: the step was granted and then nothing came of it
            return _retry(verdict, attempt, policy, burned, random)
        case "rate_limited":
            return _rate_limited(verdict, attempt, policy, burned)
        case "permanent_recipient":
            return Decision("Failed", burned, suppress="bounced" if verdict.suppress else None)
        case "permanent_batch":
            if verdict.scope in _PAUSING_SCOPES:
                return Decision("Released", {"reason": "provider_refused"}, due_in=SESSION_WAIT, pause="provider_auth")
            return Decision("Failed", burned, refused=True)
        case "unknown":
            wait = delay_in(attempt.attempt, greylisted=False, random=random)
            return Decision("OutcomeUnknown", {"attempt": attempt.attempt, "reason": "no_final_reply"}, due_in=wait)


def _retry(verdict: Verdict, attempt: Try, policy: Policy, burned: dict[str, Any], random: float) -> Decision:
    wait = delay_in(attempt.attempt, greylisted=verdict.greylisted, random=random)
    exhausted = policy.max_deferred is not None and attempt.attempt >= policy.max_deferred
    if exhausted or attempt.age + wait > policy.give_up:
        return Decision("Failed", burned | {"class": "exhausted"})
    return Decision("Deferred", burned, due_in=wait)


def _out_of_quota(verdict: Verdict, attempt: Try, policy: Policy, burned: dict[str, Any]) -> Decision:
    """Nobody is sent to for a while. The pause counts for nobody's age, or a quota would end whoever it delays."""
    if attempt.age + RATE_LIMIT_WAIT > policy.give_up:
        return Decision("Failed", burned | {"class": "exhausted"})
    return Decision(
        "Released",
        {"reason": "rate_limited"},
        due_in=RATE_LIMIT_WAIT,
        pause="provider_quota",
        resume_in=verdict.retry_in or QUOTA_WAIT,
    )


def _rate_limited(verdict: Verdict, attempt: Try, policy: Policy, burned: dict[str, Any]) -> Decision:
    """Not the recipient's fault: no attempt is burned, but age ends it too."""
    if attempt.age + RATE_LIMIT_WAIT > policy.give_up:
        return Decision("Failed", burned | {"class": "exhausted"})
    wide = verdict.scope in _PAUSING_SCOPES
    wait = SESSION_WAIT if verdict.scope == "session" else RATE_LIMIT_WAIT
    if verdict.retry_in is not None:
        wait = min(verdict.retry_in, LONGEST_WAIT)
    return Decision("Released", {"reason": "rate_limited"}, due_in=wait, wait=wait if wide else None)
