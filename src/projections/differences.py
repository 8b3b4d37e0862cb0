"""What an audit finds, in words."""

from typing import Any

from attrs import frozen

from ..events.fold import IllegalTransition, ReplayError, StreamError, VersionGap
from .records import UnreadableEvent


@frozen
class Difference:
    """Something that is not as the log says, or an event that cannot stand in it.

    `delivery_id` is 0 for a campaign as a whole; `campaign_id` is 0 for contacts, whose id `delivery_id` then is.
    `position` is that of the event to blame, if one is.
    """

    campaign_id: int
    delivery_id: int
    position: int | None
    expected: str
    actual: str

    def as_json(self) -> dict[str, Any]:
        """The public form."""
        return {
            "campaign_id": str(self.campaign_id),
            "delivery_id": str(self.delivery_id),
            "position": None if self.position is None else str(self.position),
            "expected": self.expected,
            "actual": self.actual,
        }


class OutOfOrder(StreamError):  # noqa: N818 - it names what was found, not what was done
    """An event whose position is below that of one it follows: within a stream positions are causal."""

    def __init__(self, event: str, before: int) -> None:
        super().__init__(f"{event} stands before position {before}, which it follows")
        self.event = event
        self.before = before


def fault(error: UnreadableEvent | ReplayError) -> Difference:
    """An event that cannot be read, or cannot stand where it stands."""
    if isinstance(error, UnreadableEvent):
        place = (error.row["campaign_id"], error.row["delivery_id"], error.row["position"])
        return Difference(*place, "an event that can be read", str(error.reason))
    at = error.recorded
    return Difference(at.campaign_id, at.delivery_id, at.position, *_words(error.reason))


def _words(reason: StreamError) -> tuple[str, str]:
    match reason:
        case IllegalTransition():
            return f"an event that may follow {reason.from_status or 'an empty stream'}", reason.event
        case VersionGap():
            return f"version {reason.expected or 'none'}", f"{reason.event} with version {reason.found or 'none'}"
        case OutOfOrder():
            return f"a position above {reason.before}", f"{reason.event} before it"
        case _:
            return "an event that may stand here", str(reason)
