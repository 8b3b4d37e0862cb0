"""What readers do with a mail of ours: leave, load its pictures, follow its links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from ..database import Blocks, Connection

sql = Blocks("postledger.ledger", "readers.sql")

Channel = Literal["one_click", "page"]


@frozen
class Reader:
    """Whose mail it is. `list_name` None: the campaign has no list. `suppressed`: no mail at all any more."""

    email: str | None
    """None: the person was erased."""
    mail_from: str
    list_name: str | None
    suppressed: bool
    off_list: bool


@frozen
class Engagement:
    """A picture that was loaded (Opened) or a link that was followed (Clicked); `automatic` as in the event."""

    campaign_id: int
    delivery_id: int
    type: Literal["Opened", "Clicked"]
    link: str | None = None
    automatic: str | None = None


async def read(conn: Connection, campaign_id: int, delivery_id: int) -> Reader | None:
    """The reader of a delivery; None where there is none such."""
    row = await conn.fetchrow(sql.described, campaign_id, delivery_id)
    return None if row is None else Reader(*row)


async def unsubscribe(
    conn: Connection, campaign_id: int, delivery_id: int, *, everything: bool, channel: Channel
) -> bool | None:
    """Off the campaign's list, or off everything: effect and events in one transaction, committed on return.

    False: it was so already; None: there is no such delivery. `conn` is in no transaction.
    """
    done: bool | None = await conn.fetchval(sql.unsubscribe, campaign_id, delivery_id, everything, channel)
    return done


async def note(conn: Connection, seen: Sequence[Engagement], *, timeout: float) -> int:
    """How many of them were worth an event."""
    rows = [(one.campaign_id, one.delivery_id, one.type, one.link, one.automatic) for one in seen]
    noted: int = await conn.fetchval(sql.note_engagement, *map(list, zip(*rows, strict=True)), timeout=timeout)
    return noted
