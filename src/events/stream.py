"""What every event has in common: its stream, its type name, its shape."""

from enum import StrEnum
from typing import ClassVar

from attrs import frozen


class StreamKind(StrEnum):
    """The four kinds of stream; each has its own type names, so `Cancelled` may exist in two."""

    DELIVERY = "delivery"
    CAMPAIGN = "campaign"
    CONTACT = "contact"
    SYSTEM = "system"


def stream_kind(campaign_id: int, delivery_id: int) -> StreamKind:
    """(c, d) is a delivery, (c, 0) a campaign, (0, d) a contact, (0, 0) the system."""
    if campaign_id:
        return StreamKind.DELIVERY if delivery_id else StreamKind.CAMPAIGN
    return StreamKind.CONTACT if delivery_id else StreamKind.SYSTEM


@frozen
class Event:
    """A fact that happened. The names below are written into the log: they never change.

    `type` is stated in each class rather than taken from the class's name, so that renaming a class
    renames nothing in the log. `shape` counts the forms the body has had (codec.py). An event that is
    not `versioned` has no version in its stream and changes no state.
    """

    stream: ClassVar[StreamKind]
    type: ClassVar[str]
    shape: ClassVar[int] = 1
    versioned: ClassVar[bool] = True
