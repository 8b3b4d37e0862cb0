"""What `send` tells people: what was written down, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ledger.campaigns import STATUSES
from ..ledger.writing import Written
from .output import note, number, say, table

GO_ON = "nothing is lost: run the same command again to go on"


def written(shown: Mapping[str, Any], written: Written, *, resumed: bool) -> None:
    """After the commit: id, counts, and what there is to do."""
    say(f'campaign "{shown["name"]}" (id {shown["id"]}), {number(shown["audience"])} recipients')
    say(written.report.to_text())
    if resumed:
        say("it was paused: resumed")
    if shown["rate"] is not None:
        say(f"at most {shown['rate']}, with all else that goes out through {shown['sender']['url']}")
    if shown["status"] == "scheduled":
        say(f"it starts at {clock_time(shown['scheduled_at'])}; {held(shown)}")
        note("nothing is sent before; then 'postledger work' has to be running")
    elif shown["status"] == "paused":
        note(f"it is {paused(shown)}: 'postledger campaign resume {shown['id']}' goes on with it")
    if nothing_to_do(shown, written):
        say("it is completed already, and nobody is new: nothing to send (another --name sends it again)")


def held(shown: Mapping[str, Any]) -> str:
    """What becomes of a start that is missed."""
    return (
        "however late" if shown["missed"] is None else f"if that is missed by more than {shown['missed']}, it is held"
    )


def paused(shown: Mapping[str, Any]) -> str:
    """Why, and until when."""
    pause = shown["pause"]
    until = f", until {clock_time(pause['resume_at'])}" if pause["resume_at"] else ""
    return f"paused ({pause['reason']}{until})"


def clock_time(moment: str) -> str:
    """As JSON has it, without a fraction that is zero."""
    return moment.replace(".000000Z", "Z")


def nothing_to_do(shown: Mapping[str, Any], written: Written) -> bool:
    """Completed before, and nobody is new."""
    return shown["status"] == "completed" and not written.report.accepted + written.report.suppressed


def ended(shown: Mapping[str, Any], *, stopped: bool, go_on: str) -> None:
    """Counts per outcome, and what can be done about those that are not sent. `go_on`: about what was stopped."""
    counts = shown["counts"]
    rows = [(status, number(counts[status])) for status in STATUSES if counts[status] or status == "sent"]
    table(("outcome", "recipients"), [*rows, ("all", number(shown["audience"]))], right=("recipients",))
    if shown["status"] == "paused":
        by_itself = "where 'postledger work' runs it goes on by itself then; " if shown["pause"]["resume_at"] else ""
        note(f"the campaign is {paused(shown)}; {by_itself}{go_on}")
    elif stopped and shown["status"] == "sending":
        note(f"stopped before the end; {go_on}")
    if counts["failed"] or counts["unknown"]:
        status = "failed" if counts["failed"] else "unknown"
        note(f"who: postledger campaign recipients {shown['id']} --status {status}")
        note(f"once more: postledger campaign retry {shown['id']}")


def rehearsed(shown: Mapping[str, Any], head: Mapping[str, str]) -> None:
    """A dry run: the report, and the head of the first mail."""
    say(f'dry run of campaign "{shown["name"]}": nothing was written, nothing sent')
    counts = dict(shown["report"])
    say(
        ", ".join(
            f"{number(value)} {name.replace('_', ' ')}" for name, value in counts.items() if isinstance(value, int)
        )
    )
    say("\nthe first mail begins:")
    for name, value in head.items():
        say(f"  {name}: {value}")
