"""Everything that happened to one delivery."""

from typing import Any

from ..database import Blocks, Connection
from .records import event_json

sql = Blocks("postledger.projections", "history.sql")


async def history(conn: Connection, campaign_id: int, delivery_id: int) -> list[dict[str, Any]]:
    """The events of one delivery in order, as public JSON; empty for a delivery that the log does not know.

    Nothing is decoded: an event that cannot be read is shown as it stands.
    """
    return [event_json(row) for row in await conn.fetch(sql.history, campaign_id, delivery_id)]
