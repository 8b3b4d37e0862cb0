"""How the catcher treats a recipient: accept, refuse, answer late, or hang up at the worst moment."""

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

from attrs import frozen

Times = int | None
"""For how many attempts on a recipient a behaviour holds, after which its mail is accepted; None: for all."""


@frozen
class Accept:
    times: Times = None


@frozen
class Answer:
    """A reply of one's own at one step: `Answer("rcpt", 450, "4.2.0 Mailbox busy", times=1)`."""

    stage: Literal["rcpt", "data", "eod"]
    code: int
    text: str
    times: Times = None


@frozen
class Cut:
    """Hangs up in mid-body, after that many bytes, and keeps nothing; or after the dot, and keeps the mail."""

    at: Literal["body", "dot"]
    after: int = 0
    times: Times = None


@frozen
class Slow:
    """Accepts the mail, and says so late."""

    delay_in: timedelta
    times: Times = None


Behaviour = Accept | Answer | Cut | Slow
Choice = Callable[[str], Behaviour]
"""A pure function of the recipient's address, so that a run can be repeated and its counts be foretold."""

TAGS: dict[str, Behaviour] = {
    "busy": Answer("rcpt", 450, "4.2.0 Mailbox busy, try again", times=1),
    "greylisted": Answer("rcpt", 450, "4.7.1 Greylisted, please try again later", times=1),
    "gone": Answer("rcpt", 550, "5.1.1 No such user here"),
    "cut-before-dot": Cut("body", times=1),
    "cut-after-dot": Cut("dot", times=1),
    "slow": Slow(timedelta(seconds=1), times=1),
}


def accept(recipient: str) -> Behaviour:
    """Everybody is welcome."""
    del recipient
    return Accept()


def by_tag(recipient: str) -> Behaviour:
    """What the address itself asks for: `ada+gone@example.net` is refused. The tags are those of TAGS."""
    local, _, _ = recipient.rpartition("@")
    _, _, tag = local.partition("+")
    return TAGS.get(tag, Accept())
