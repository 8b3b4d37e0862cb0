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
    if nothing_to_do(shown, written):
        say("it is completed already, and nobody is new: nothing to send (another --name sends it again)")


def nothing_to_do(shown: Mapping[str, Any], written: Written) -> bool:
    """Completed before, and nobody is new."""
    return shown["status"] == "completed" and not written.report.accepted + written.report.suppressed


def ended(shown: Mapping[str, Any], *, stopped: bool) -> None:
    """Counts per outcome, and what can be done about those that are not sent."""
    counts = shown["counts"]
    rows = [(status, number(counts[status])) for status in STATUSES if counts[status] or status == "sent"]
    table(("outcome", "recipients"), [*rows, ("all", number(shown["audience"]))], right=("recipients",))
    if shown["status"] == "paused":
        note(f"the campaign is paused ({shown['pause']['reason']}); {GO_ON}")
    elif stopped and shown["status"] == "sending":
        note(f"stopped before the end; {GO_ON}")
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
