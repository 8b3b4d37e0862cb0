"""Is everything as the log says? Compared set by set, in one snapshot for each campaign, while traffic runs."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from attrs import define, field, frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError
from . import contacts, streams
from .differences import Difference
from .snapshot import chunks, snapshot

sql = Blocks("postledger.projections", "verify.sql")

LISTED = 1000
"""Differences that are listed; all are counted."""


@frozen
class Verification:
    """What an audit found: `checked` of `total` deliveries, `found` differences, the first of which are listed.

    `unsealed` events are in no block yet; None where there are no blocks. That is no difference: what was committed a
    moment ago is rightly in none, and no time tells when it should be.
    """

    equal: bool
    checked: int
    total: int
    found: int
    differences: Sequence[Difference]
    unsealed: int | None = None

    def as_json(self) -> dict[str, Any]:
        """The public form."""
        return {
            "equal": self.equal,
            "checked": self.checked,
            "total": self.total,
            "differences": [difference.as_json() for difference in self.differences],
            "unsealed": self.unsealed,
        }


async def verify(conn: Connection, campaign_id: int | None) -> Verification:
    """One campaign, or all of them with contacts and the system's own log; `conn` must be in no transaction.

    Memory does not grow with the audience, nor with what is found. Raises NotFoundError for a campaign that no
    table and no event knows.
    """
    tally = _Tally()
    if campaign_id is not None:
        await _one(conn, campaign_id, tally)
        return tally.verification()
    for row in await conn.fetch(sql.campaign_ids):
        await _campaign(conn, row["id"], tally)
    async with snapshot(conn):
        await tally.take(contacts.contacts(conn))
        await tally.take(streams.system(conn))
        await _blocks(conn, 0, tally)
        await tally.take(_block_sizes(conn))
    return tally.verification()


async def _one(conn: Connection, campaign_id: int, tally: "_Tally") -> None:
    if not await conn.fetchval(sql.is_known, campaign_id):
        raise NotFoundError(f"no campaign has the id {campaign_id}: 'postledger campaign list' shows all of them")
    await _campaign(conn, campaign_id, tally)


async def _campaign(conn: Connection, campaign_id: int, tally: "_Tally") -> None:
    async with snapshot(conn):
        tally.total += await conn.fetchval(sql.audience, campaign_id)
        await tally.take(streams.campaign(conn, campaign_id))
        await tally.take(streams.deliveries(conn, campaign_id))
        for statement in (sql.recipients, sql.once, sql.holders, sql.claims, sql.unreachable):
            await tally.take(_told(conn, statement, campaign_id))
        if await conn.fetchval(sql.may_read_secrets):
            await tally.take(_told(conn, sql.addresses, campaign_id))
        await _blocks(conn, campaign_id, tally)


async def _blocks(conn: Connection, campaign_id: int, tally: "_Tally") -> None:
    unsealed = await conn.fetchval(sql.unsealed, campaign_id)
    if unsealed is not None:
        tally.unsealed = (tally.unsealed or 0) + unsealed
        await tally.take(_told(conn, sql.positions, campaign_id))


async def _block_sizes(conn: Connection) -> AsyncIterator[Difference]:
    async for rows in chunks(conn, sql.sizes):
        for row in rows:
            yield Difference(0, *row)


async def _told(conn: Connection, statement: str, campaign_id: int) -> AsyncIterator[Difference]:
    """The differences that a block puts into words itself."""
    async for rows in chunks(conn, statement, campaign_id):
        for row in rows:
            yield Difference(campaign_id, *row)


@define
class _Tally:
    """The result as it grows."""

    total: int = 0
    found: int = 0
    unsealed: int | None = None
    differences: list[Difference] = field(factory=list)

    async def take(self, differences: AsyncIterator[Difference]) -> None:
        async for difference in differences:
            self.found += 1
            if len(self.differences) < LISTED:
                self.differences.append(difference)

    def verification(self) -> Verification:
        return Verification(not self.found, self.total, self.total, self.found, self.differences, self.unsealed)
