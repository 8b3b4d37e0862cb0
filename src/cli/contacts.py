"""`postledger contacts`: lists of people who want a letter, and who do not want it any more."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import click

from ..database import Connection
from ..errors import DataError
from ..ledger import contacts as ledger
from ..ledger.audience.header import Columns
from ..ledger.contacts import Imported
from ..ledger.documents import moment
from ..ledger.sealing import seal_all
from ..ledger.writing import MANY
from ..messages.addresses import CONTROLS, InvalidAddress, normalise
from .connecting import appending, connected, opened, straight
from .exits import Exit
from .options import Given, Group
from .output import document, number, say, table
from .people import People, people_of
from .progress import reading
from .runner import Interrupts, run

NAME_LIMIT = 200


@click.group(cls=Group, short_help="Keep lists of people.")
def contacts() -> None:
    """Keep lists: import people, let them leave. `postledger send --list NAME` writes to a list."""


@contacts.command(
    "import",
    short_help="Put people on a list.",
    example="""
    postledger contacts import --list digest --to people.csv
    postledger contacts import --list digest --query "SELECT email, name, town FROM users WHERE wants_digest"
    postledger send --list digest --subject "Your week in {{ town }}" ...
    """,
)
@click.option("--list", "name", metavar="NAME", required=True, help="The list; made where it is new.")
@click.option("--to", metavar="FILE", help="People as CSV, header with `email`, perhaps `name`; - is standard input.")
@click.option(
    "--query",
    metavar="SQL",
    help="People from a SELECT on your own tables in the same database, run with the login's own rights.",
)
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_obj
def import_(given: Given, name: str, to: str | None, query: str | None, quiet: bool) -> int:
    """Put the people of a file or a query on a list. All columns but `key` are kept, as the letter's variables.

    Who is on it already gets the name and the columns of this import. Who unsubscribed, from the list or from all,
    stays so: only they themselves can change that (`contacts subscribe`).
    """
    _check_name(name)
    with ExitStack() as files:
        people = people_of(to, query, None, check=_any_columns, files=files)
        return run(given, lambda _: _import(given, name, people, quiet=quiet))


async def _import(given: Given, name: str, people: People, *, quiet: bool) -> int:
    config = given.config()
    async with opened(config, install=True) as database, straight(config, database).connection(label="import") as conn:
        async with reading(people.name, quiet=quiet) as progress:
            staged = await people.stage(conn, straight(config, database), _any_columns, progress)
        async with reading(f"list {name}", quiet=quiet) as progress:
            list_id = await ledger.keep_list(conn, name)
            imported = await ledger.import_people(conn, list_id, staged, unit=people.unit, progress=progress)
        if imported.counts["added"] > MANY:
            # The login may own the tables; the role of the app never does.
            async with straight(config, database).connection(role=None, label="analyze") as owner:
                await ledger.analyze(owner)
        await seal_all(conn)
    _show_import(given, name, imported)
    return Exit.OK


def _show_import(given: Given, name: str, imported: Imported) -> None:
    if given.json:
        document({"list": name, **imported.to_json()})
        return
    say(f'list "{name}"')
    say(imported.to_text())


@contacts.command(example="postledger contacts lists --json | jq '.items[].subscribed'")
@click.pass_obj
def lists(given: Given) -> int:
    """All lists, and how many people are on them."""

    async def show(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            found = await ledger.lists(conn)
        if given.json:
            items = [
                {
                    "id": str(one.id),
                    "name": one.name,
                    "created_at": moment(one.created_at),
                    "subscribed": one.subscribed,
                    "unsubscribed": one.unsubscribed,
                }
                for one in found
            ]
            document({"items": items, "next": None})
            return Exit.OK
        rows = [(one.id, one.name, number(one.subscribed), number(one.unsubscribed)) for one in found]
        table(("id", "name", "subscribed", "unsubscribed"), rows, right=("subscribed", "unsubscribed"))
        return Exit.OK

    return run(given, show)


@contacts.command(
    short_help="Take somebody off a list, or off all.",
    example="""
    postledger contacts unsubscribe ann@x.example --list digest
    """,
)
@click.argument("address")
@click.option("--list", "name", metavar="NAME", help="From this list alone; else from everything.")
@click.pass_obj
def unsubscribe(given: Given, address: str, name: str | None) -> int:
    """Take an address off a list, or, without --list, off all lists and out of every campaign. No import undoes it.

    What waits for them is not sent any more. Who was never on the list will not get on it by an import either.
    """
    _check_address(address)

    async def act(conn: Connection) -> bool:
        list_id = None if name is None else await ledger.find_list(conn, name)
        return await ledger.unsubscribe(conn, address, list_id)

    where = "everything" if name is None else f'list "{name}"'
    words = (f"unsubscribed from {where}", f"is unsubscribed from {where} already")
    return run(given, lambda _: _change(given, act, name, words, subscribed=False))


@contacts.command(
    short_help="Put somebody on a list who wants to be.",
    example="""
    postledger contacts subscribe ann@x.example --list digest
    """,
)
@click.argument("address")
@click.option("--list", "name", metavar="NAME", required=True, help="The list, which has to be there.")
@click.pass_obj
def subscribe(given: Given, address: str, name: str) -> int:
    """Put an address on a list because the person said so: the only way back after they have left it.

    For one person; many come by `contacts import`, which brings back nobody.
    """
    _check_address(address)

    async def act(conn: Connection) -> bool:
        return await ledger.subscribe(conn, address, await ledger.find_list(conn, name))

    words = (f'subscribed to list "{name}"', f'is on list "{name}" already')
    return run(given, lambda _: _change(given, act, name, words, subscribed=True))


async def _change(
    given: Given,
    act: Callable[[Connection], Awaitable[bool]],
    name: str | None,
    words: tuple[str, str],
    *,
    subscribed: bool,
) -> int:
    async with appending(given.config()) as conn:
        changed = await act(conn)
    if given.json:
        document({"list": name, "subscribed": subscribed, "changed": changed})
    else:
        say(words[0] if changed else words[1])
    return Exit.OK


def _any_columns(columns: Columns, where: str) -> None:
    """A list takes what there is: letters come later."""


def _check_name(name: str) -> None:
    if CONTROLS.search(name) or not name.isprintable() or not 0 < len(name.strip()) <= NAME_LIMIT:
        raise DataError(f"--list must be one line of 1 to {NAME_LIMIT} characters that can be printed")


def _check_address(address: str) -> None:
    try:
        normalise(address)
    except InvalidAddress as error:
        raise DataError(f"the address cannot be used: {error}") from None
