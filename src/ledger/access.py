"""API keys: made, listed, withdrawn, recognised. Only their hashes are kept."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from attrs import frozen

from ..database import Blocks, Connection
from ..errors import NotFoundError

sql = Blocks("postledger.ledger", "access.sql")

Scope: TypeAlias = Literal["send", "read", "audit", "admin"]
SCOPES: tuple[Scope, ...] = ("send", "read", "audit", "admin")

PREFIX = "plk"


@frozen
class Key:
    """A key as it may be shown."""

    id: int
    name: str | None
    scopes: tuple[str, ...]
    created_at: datetime
    revoked_at: datetime | None


@frozen
class Caller:
    """Whose request it is."""

    key_id: int
    scopes: frozenset[str]


async def create(conn: Connection, scopes: Sequence[str], name: str | None = None) -> tuple[int, str]:
    """A new key: its id and the key itself, which is shown here and never again."""
    secret = secrets.token_urlsafe(32)
    key_id: int = await conn.fetchval(sql.create, name, digest(secret), [one for one in SCOPES if one in scopes])
    return key_id, f"{PREFIX}_{key_id}_{secret}"


async def create_first(conn: Connection) -> str | None:
    """A key of all scopes where there never was one; None where there was."""
    secret = secrets.token_urlsafe(32)
    key_id: int | None = await conn.fetchval(sql.create_first, digest(secret), list(SCOPES))
    return None if key_id is None else f"{PREFIX}_{key_id}_{secret}"


async def every(conn: Connection) -> list[Key]:
    """All there ever were, the oldest first."""
    rows = await conn.fetch(sql.every)
    return [Key(row["id"], row["name"], tuple(row["scopes"]), row["created_at"], row["revoked_at"]) for row in rows]


async def revoked(conn: Connection) -> frozenset[int]:
    """The ids of all keys that open nothing any more."""
    return frozenset(row["id"] for row in await conn.fetch(sql.revoked))


async def revoke(conn: Connection, key_id: int) -> bool:
    """The key opens nothing any more; False: that was so already. Raises NotFoundError."""
    done: bool | None = await conn.fetchval(sql.revoke, key_id)
    if done is None:
        raise NotFoundError(f"no key has the id {key_id}: 'postledger keys list' shows them all")
    return done


async def find(conn: Connection, shown: str) -> Caller | None:
    """Whose key this is; None: nobody's, or one that was revoked."""
    prefix, _, rest = shown.partition("_")
    number, _, secret = rest.partition("_")
    if prefix != PREFIX or not (number.isascii() and number.isdecimal() and len(number) < 19):
        return None
    row = await conn.fetchrow(sql.by_id, int(number))
    kept = bytes(32) if row is None else row["hash"]
    if not hmac.compare_digest(digest(secret), kept) or row is None or row["revoked_at"] is not None:
        return None
    return Caller(row["id"], frozenset(row["scopes"]))


def digest(secret: str) -> bytes:
    """Plain SHA-256: the secret has 256 random bits, which nobody guesses, however fast they hash."""
    return hashlib.sha256(secret.encode(errors="surrogateescape")).digest()
