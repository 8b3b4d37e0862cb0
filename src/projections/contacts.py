"""Contacts' streams against their rows, suppressions and lists."""

from collections.abc import AsyncIterator, Mapping
from datetime import datetime

from attrs import evolve, field, frozen

from ..database import Blocks, Connection
from ..events.fold import IllegalTransition, VersionGap
from ..events.text import read_moment, write_moment
from ..events.types import (
    ContactAdded,
    ContactUnsubscribed,
    Erased,
    Recorded,
    StreamKind,
    Subscribed,
    Suppressed,
    Unsuppressed,
)
from .differences import Difference
from .records import Row
from .shapes import shapes
from .snapshot import chunks
from .streams import compare, read_streams

sql = Blocks("postledger.projections", "verify.sql")


@frozen
class Suppression:
    """Why somebody gets no mail any more, and since when."""

    reason: str
    source: str
    at: datetime


@frozen
class Subscription:
    """Whether somebody is on a list, and since when that is so."""

    subscribed: bool
    at: datetime


@frozen
class ContactState:
    """The row of `contacts`, that of `suppressions` where there is one, and those of `subscriptions` by list."""

    version: int
    suppression: Suppression | None = None
    lists: Mapping[str, Subscription] = field(factory=dict)
    erased_at: datetime | None = None


async def contacts(conn: Connection) -> AsyncIterator[Difference]:
    """Where the log and the tables differ. PostgreSQL compares; what it finds equal is never read."""
    async for rows in chunks(conn, sql.contacts, shapes(StreamKind.CONTACT)):
        streams = await read_streams(conn, 0, [row["contact_id"] for row in rows])
        for row in rows:
            events = streams.get(row["contact_id"], [])
            found = compare(0, row["contact_id"], events, _after, _words, _row_words(row))
            if found is not None:
                yield found


def _after(state: ContactState | None, recorded: Recorded) -> ContactState:
    event, before = recorded.event, state or ContactState(0)
    if recorded.version != before.version + 1:
        raise VersionGap(before.version + 1, recorded.version, event.type)
    if (state is None) != isinstance(event, ContactAdded):
        raise IllegalTransition("a contact" if state else None, event.type)
    now = evolve(before, version=before.version + 1)
    match event:
        case Suppressed():
            return evolve(now, suppression=Suppression(event.reason, event.source, recorded.at))
        case Unsuppressed():
            return evolve(now, suppression=None)
        case Subscribed() | ContactUnsubscribed():
            subscription = Subscription(isinstance(event, Subscribed), recorded.at)
            return evolve(now, lists={**now.lists, event.list: subscription})
        case Erased():
            return evolve(now, erased_at=recorded.at)
        case _:
            return now


def _row_words(row: Row) -> str:
    suppression = row["reason"] and Suppression(row["reason"], row["source"], row["created_at"])
    lists = {id_: Subscription(subscribed == "true", read_moment(at)) for id_, subscribed, at in row["lists"]}
    words = _words(
        None if row["version"] is None else ContactState(row["version"], suppression, lists, row["erased_at"])
    )
    return f"{words}, under another address" if row["is_foreign"] else words


def _words(state: ContactState | None) -> str:
    if state is None:
        return "no row in contacts"
    lists = "".join(
        f", {'on' if one.subscribed else 'off'} list {id_} since {write_moment(one.at)}"
        for id_, one in sorted(state.lists.items())
    )
    erased = f", erased at {write_moment(state.erased_at)}" if state.erased_at else ""
    return f"version {state.version}, {_suppression_words(state.suppression)}{lists}{erased}"


def _suppression_words(suppression: Suppression | None) -> str:
    if suppression is None:
        return "not suppressed"
    return f"suppressed ({suppression.reason}, {suppression.source}) at {write_moment(suppression.at)}"
