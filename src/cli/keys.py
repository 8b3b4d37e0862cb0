"""`postledger keys`: who may call the HTTP API."""

from __future__ import annotations

from typing import Any

import click

from ..errors import DataError, UsageError
from ..ledger import access
from ..ledger.documents import moment
from ..messages.addresses import CONTROLS
from .connecting import appending, connected
from .exits import Exit
from .options import Given, Group
from .output import document, note, say, table
from .runner import Interrupts, run

NAME_LIMIT = 200


@click.group(cls=Group, short_help="Make and withdraw keys of the HTTP API.")
def keys() -> None:
    """Make, list and withdraw keys of the HTTP API. Of a key only its hash is kept.

    Scopes: send (campaigns, messages, their recipients), read (what there is, people included), audit (the log),
    admin (senders and all the rest).
    """


@keys.command(
    short_help="Make a key, and show it once.",
    example="""
    postledger keys create --scope send --scope read --name shop
    KEY=$(postledger keys create --scope read --json | jq -r .key)
    """,
)
@click.option("--scope", "scopes", metavar="SCOPE", multiple=True, required=True, help="send, read, audit or admin.")
@click.option("--name", help="For whom or what it is.")
@click.pass_obj
def create(given: Given, scopes: tuple[str, ...], name: str | None) -> int:
    """Make a key that opens these scopes. It is shown here and never again."""
    asked = _scopes(scopes)
    _check_name(name)

    async def make(interrupts: Interrupts) -> int:
        async with appending(given.config(), install=True) as conn:
            key_id, key = await access.create(conn, asked, name)
        if given.json:
            document({"id": str(key_id), "key": key, "scopes": list(asked), "name": name})
        else:
            say(key)
            note(f"key {key_id} opens {', '.join(asked)}; it is shown this once, and only its hash is kept")
        return Exit.OK

    return run(given, make)


@keys.command("list", example="postledger keys list --json")
@click.pass_obj
def list_(given: Given) -> int:
    """All keys there ever were; not the keys themselves, which nobody has but their owners."""

    async def show(interrupts: Interrupts) -> int:
        async with connected(given.config()) as conn:
            found = [_document(key) for key in await access.every(conn)]
        if given.json:
            document({"items": found, "next": None})
        else:
            columns = ("id", "name", "scopes", "created_at", "revoked_at")
            table(columns, [[*_shown(key, columns)] for key in found])
        return Exit.OK

    return run(given, show)


@keys.command(short_help="Withdraw a key.", example="postledger keys revoke 3")
@click.argument("key_id", metavar="ID")
@click.pass_obj
def revoke(given: Given, key_id: str) -> int:
    """Withdraw a key: a second later it opens nothing any more, anywhere."""
    if not (key_id.isascii() and key_id.isdecimal() and len(key_id) < 19):
        raise DataError("a key is named by its id, a number: 'postledger keys list' shows them all")

    async def withdraw(interrupts: Interrupts) -> int:
        async with appending(given.config()) as conn:
            done = await access.revoke(conn, int(key_id))
            (found,) = [key for key in await access.every(conn) if key.id == int(key_id)]
        if given.json:
            document(_document(found))
        else:
            say(f"key {key_id} {'opens nothing any more' if done else 'was revoked already'}")
        return Exit.OK

    return run(given, withdraw)


def _scopes(given: tuple[str, ...]) -> list[access.Scope]:
    """Repeated, or with commas between them; in their own order, each once."""
    words = [word.strip() for one in given for word in one.split(",")]
    for word in words:
        if word not in access.SCOPES:
            raise UsageError(f"--scope {word!r} is not known: there are {', '.join(access.SCOPES)}")
    return [scope for scope in access.SCOPES if scope in words]


def _check_name(name: str | None) -> None:
    if name is not None and (not 0 < len(name) <= NAME_LIMIT or CONTROLS.search(name) or not name.isprintable()):
        raise DataError(f"--name must be one line of 1 to {NAME_LIMIT} characters that can be printed")


def _document(key: access.Key) -> dict[str, Any]:
    return {
        "id": str(key.id),
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": moment(key.created_at),
        "revoked_at": moment(key.revoked_at),
    }


def _shown(key: dict[str, Any], columns: tuple[str, ...]) -> list[object]:
    return [", ".join(key[name]) if name == "scopes" else key[name] for name in columns]
