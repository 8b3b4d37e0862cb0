"""Where the catcher puts the mails it accepts: a log of one line each, a folder, a function."""

import itertools
import os
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import orjson
from attrs import field, frozen

_HEADER = re.compile(rb"(?im)^(message-id|x-postledger-[a-z-]+):[ \t]*([^\r\n]*(?:\r\n[ \t][^\r\n]*)*)")


@frozen
class Caught:
    """One accepted mail for one recipient; `headers` are Postledger's own, by lower-case name."""

    recipient: str
    message_id: str
    headers: dict[str, str]
    at: datetime
    sender: str
    content: bytes = field(repr=False)

    @classmethod
    def read(cls, sender: str, recipient: str, content: bytes) -> "Caught":
        head, _, _ = content.partition(b"\r\n\r\n")
        found = {
            name.decode().lower(): " ".join(value.decode("utf-8", "replace").split())
            for name, value in _HEADER.findall(head)
        }
        message_id = found.pop("message-id", "")
        return cls(recipient, message_id, found, datetime.now(UTC), sender, content)


Keeper = Callable[[Caught], None]
"""Called for each mail before its 250: what raises here is not accepted."""


def log_to(path: Path) -> Keeper:
    """Appends one JSON line per mail: {recipient, message_id, headers, at}.

    Each is one write to an append-only file, so that the counts outlive the process, however it ends.
    """
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def keep(caught: Caught) -> None:
        line = orjson.dumps(
            {
                "recipient": caught.recipient,
                "message_id": caught.message_id,
                "headers": caught.headers,
                "at": caught.at,
            },
            option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z,
        )
        os.write(file, line)

    return keep


def files_in(folder: Path) -> Keeper:
    """Writes each mail into a file of its own: 000001.eml, 000002.eml, ..."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = itertools.count(1)

    def keep(caught: Caught) -> None:
        (folder / f"{next(numbers):06d}.eml").write_bytes(caught.content)

    return keep
