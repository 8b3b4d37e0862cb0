"""A sample campaign from end to end, and whether it came to what it must come to."""

import secrets
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path

from attrs import frozen

from ..database import Database
from ..errors import ConfigurationError
from ..ledger import campaigns, operating
from ..projections.find import find_campaign, find_recipient
from ..projections.history import history
from ..projections.verify import verify
from .findings import Findings, compare
from .people import Cast
from .receiver import Receiver, receiving

SUBJECT = "{{ greeting }}, {{ name }}: letters that were never sent"
MAIL_FROM = "The Reading Room <news@reading-room.example>"
PEOPLE, LETTER, LOG = "people.csv", "letter.html", "received.jsonl"


@frozen
class Parcel:
    """What a user would give to `send`."""

    name: str
    people: Path
    letter: Path
    via: str


Send = Callable[[Parcel], Awaitable[bool]]
"""Sends like the command of that name; False: somebody stopped it before the end."""


async def run(database: Database, folder: Path, *, recipients: int, send: Send) -> Findings | None:
    """The files of the run go into a folder of its own under `folder`. None: stopped before the end."""
    name = f"demo-{secrets.token_hex(4)}"
    cast = Cast(recipients, domain=f"{name}.example")
    home = _packed(folder / name, cast)
    async with database.connection(label="demo") as conn:
        await operating.suppress(conn, cast.suppressed.email, "unsubscribed")
    async with receiving(home / LOG) as receiver:
        finished = await send(Parcel(name, home / PEOPLE, home / LETTER, receiver.url))
    if not finished:
        await _cancel(database, name)
        return None
    return await _find(database, name, cast, receiver)


def _packed(home: Path, cast: Cast) -> Path:
    """The folder with the two files that a user brings."""
    try:
        home.mkdir(parents=True)
        cast.write(home / PEOPLE)
        (home / LETTER).write_bytes(files("postledger.demo").joinpath(LETTER).read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"the folder {home} cannot be written ({error.strerror}): name another with --data or POSTLEDGER_DATA"
        ) from error
    return home


async def _cancel(database: Database, name: str) -> None:
    """Its mail server is gone, and nobody shall try to reach it for a day."""
    async with database.connection(label="demo") as conn:
        campaign = await find_campaign(conn, name)
        if await conn.fetchval(campaigns.sql.status, campaign.id) in ("sending", "paused"):
            await operating.command(conn, campaign.id, "cancel")
            await operating.sweep(conn, campaign.id)


async def _find(database: Database, name: str, cast: Cast, receiver: Receiver) -> Findings:
    copies = receiver.copies()
    async with database.connection(label="demo") as conn:
        campaign = await find_campaign(conn, name)
        who = await find_recipient(conn, campaign, cast.interesting.key)
        return Findings(
            campaign_id=campaign.id,
            campaign=name,
            home=receiver.log.parent,
            person=cast.interesting,
            lines=await compare(conn, campaign.id, cast, copies),
            history=await history(conn, campaign.id, who.delivery_id),
            copies=copies[cast.interesting.email],
            verification=await verify(conn, campaign.id),
        )
