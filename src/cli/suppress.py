"""`postledger suppress`: an address that nobody mails any more."""

from __future__ import annotations

import click

from ..errors import DataError
from ..ledger import operating
from ..messages.addresses import CONTROLS, InvalidAddress, normalise
from .connecting import appending
from .exits import Exit
from .options import Command, Given
from .output import document, say
from .runner import Interrupts, run

REASON_LIMIT = 100


@click.command(
    cls=Command,
    short_help="Mail an address no more.",
    example="""
    postledger suppress ann@x.example --reason "asked by phone"
    """,
)
@click.argument("address")
@click.option("--reason", default=operating.OPERATOR, show_default=True, help="Kept in the log for ever: no names.")
@click.pass_obj
def suppress(given: Given, address: str, reason: str) -> int:
    """Mail this address no more, from any campaign, what waits included.

    The address itself is not kept, only a keyed hash of it. It survives deletion and re-import of the person.
    """
    _check(address, reason)

    async def keep(interrupts: Interrupts) -> int:
        async with appending(given.config()) as conn:
            kept = await operating.suppress(conn, address, reason)
        if given.json:
            document({"address_hash": kept.address_hash.hex(), "reason": kept.reason})
        else:
            say(f"suppressed ({kept.reason}): {kept.address_hash.hex()}")
        return Exit.OK

    return run(given, keep)


def _check(address: str, reason: str) -> None:
    try:
        normalise(address)
    except InvalidAddress as error:
        raise DataError(f"the address to suppress cannot be used: {error}") from None
    if CONTROLS.search(reason) or not reason.isprintable() or not 0 < len(reason) <= REASON_LIMIT:
        raise DataError(f"--reason must be one line of 1 to {REASON_LIMIT} characters that can be printed")
    if "@" in reason:
        raise DataError("--reason goes into the log, which keeps no addresses: say it without one")
