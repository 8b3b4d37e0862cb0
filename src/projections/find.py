"""Which campaign and which recipient a word of the command line means."""

from attrs import Factory, field, frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError, UsageError
from ..events.text import scrub
from ..messages.addresses import InvalidAddress, normalise
from .records import Row

sql = Blocks("postledger.projections", "find.sql")

LARGEST_ID = 2**63 - 1
NAMED = 5
"""How many candidates an ambiguity names."""


@frozen
class FoundCampaign:
    """A campaign that a word meant: the newest generation, where the word was its name.

    `generations` are all that the word covers, this one first: by name those before it too, by id it alone.
    """

    id: int
    name: str
    generations: tuple[int, ...] = field(default=Factory(lambda self: (self.id,), takes_self=True))


@frozen
class FoundRecipient:
    """A delivery that a word meant; key and email are None for a person who was erased, or never written down."""

    campaign_id: int
    delivery_id: int
    key: str | None
    email: str | None


async def find_campaign(conn: Connection, word: str) -> FoundCampaign:
    """The campaign with this name, else with this id. Raises NotFoundError."""
    name = scrub(word)
    if (generations := await conn.fetchval(sql.campaign_named, name)) is not None:
        return FoundCampaign(generations[0], name, tuple(generations))
    if (campaign_id := _id_in(word)) is not None and (row := await conn.fetchrow(sql.campaign_with_id, campaign_id)):
        return FoundCampaign(*row)
    raise NotFoundError(f"no campaign has the name or id {word!r}: 'postledger campaign list' shows all of them")


async def find_recipient(conn: Connection, campaign: FoundCampaign, word: str) -> FoundRecipient:
    """The recipient with this key, else address, else delivery id, in any of the campaign's generations.

    Raises NotFoundError, or UsageError where there are several. Addresses are compared by their hash, which outlives
    the erasure of a person.
    """
    ids = list(campaign.generations)
    found = await conn.fetch(sql.recipients_with_key, ids, scrub(word), NAMED + 1)
    if not found and (address := _address_in(word)) is not None:
        found = await conn.fetch(sql.recipients_with_address, ids, address, NAMED + 1)
    if not found and (delivery_id := _id_in(word)) is not None:
        found = await conn.fetch(sql.recipient_with_id, ids, delivery_id)
    if not found:
        raise NotFoundError(
            f"campaign {campaign.id} has no recipient with the key, address or delivery id {word!r}: "
            f"'postledger campaign recipients {campaign.id}' shows all of them"
        )
    if len(found) > 1:
        shown = ", ".join(str(row["delivery_id"]) for row in found[:NAMED])
        more = ", ..." if len(found) > NAMED else ""
        raise UsageError(
            f"several deliveries of campaign {campaign.id} went by {word!r}: give the delivery id instead "
            f"({shown}{more})"
        )
    return FoundRecipient(*found[0])


async def find_delivery(conn: Connection, delivery_id: int) -> Row:
    """A delivery by its id alone: who, in which campaign, how it stands, and what came of it. Raises NotFoundError."""
    row = await conn.fetchrow(sql.delivery, delivery_id)
    if row is None:
        raise NotFoundError(f"no delivery has the id {delivery_id}")
    return row


def _id_in(word: str) -> int | None:
    if not (word.isascii() and word.isdigit()) or len(word) > len(str(LARGEST_ID)):
        return None
    return number if (number := int(word)) <= LARGEST_ID else None


def _address_in(word: str) -> str | None:
    try:
        return normalise(word).full
    except InvalidAddress:
        return None
