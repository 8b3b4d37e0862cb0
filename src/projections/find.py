"""Which campaign and which recipient a word of the command line means."""

from collections.abc import Sequence

import asyncpg
from attrs import frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError, UsageError
from ..events.text import scrub
from ..messages.addresses import InvalidAddress, normalise

sql = Blocks("postledger.projections", "find.sql")

LARGEST_ID = 2**63 - 1
NAMED = 5
"""How many candidates an ambiguity names."""


@frozen
class FoundCampaign:
    """A campaign that a word meant."""

    id: int
    name: str


@frozen
class FoundRecipient:
    """A delivery that a word meant; key and email are None for a person who was erased, or never written down."""

    campaign_id: int
    delivery_id: int
    key: str | None
    email: str | None


async def find_campaign(conn: Connection, word: str) -> FoundCampaign:
    """The campaign with this name, else with this id. Raises NotFoundError, or UsageError where there are several."""
    found = await conn.fetch(sql.campaigns_named, scrub(word), NAMED + 1)
    if not found and (campaign_id := _id_in(word)) is not None:
        found = await conn.fetch(sql.campaign_with_id, campaign_id)
    if not found:
        raise NotFoundError(f"no campaign has the name or id {word!r}: 'postledger campaign list' shows all of them")
    _only(found, "id", f"campaigns have the name {word!r}")
    return FoundCampaign(*found[0])


async def find_recipient(conn: Connection, campaign_id: int, word: str) -> FoundRecipient:
    """The recipient of a campaign with this key, else address, else delivery id. Raises as `find_campaign` does.

    Addresses are compared by their hash, which outlives the erasure of a person.
    """
    found = await conn.fetch(sql.recipients_with_key, campaign_id, scrub(word), NAMED + 1)
    if not found and (address := _address_in(word)) is not None:
        found = await conn.fetch(sql.recipients_with_address, campaign_id, address, NAMED + 1)
    if not found and (delivery_id := _id_in(word)) is not None:
        found = await conn.fetch(sql.recipient_with_id, campaign_id, delivery_id)
    if not found:
        raise NotFoundError(
            f"campaign {campaign_id} has no recipient with the key, address or delivery id {word!r}: "
            f"'postledger campaign recipients {campaign_id}' shows all of them"
        )
    _only(found, "delivery_id", f"deliveries of campaign {campaign_id} went by {word!r}")
    return FoundRecipient(campaign_id, *found[0])


def _only(found: Sequence[asyncpg.Record], what: str, many: str) -> None:
    if len(found) > 1:
        ids = ", ".join(str(row[0]) for row in found[:NAMED])
        more = ", ..." if len(found) > NAMED else ""
        raise UsageError(f"several {many}: give the {what.replace('_', ' ')} instead ({ids}{more})")


def _id_in(word: str) -> int | None:
    if not (word.isascii() and word.isdigit()) or len(word) > len(str(LARGEST_ID)):
        return None
    return number if (number := int(word)) <= LARGEST_ID else None


def _address_in(word: str) -> str | None:
    try:
        return normalise(word).full
    except InvalidAddress:
        return None
