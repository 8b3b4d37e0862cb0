"""`file:///folder`: one .eml file per delivery, to look at what would leave or for whoever takes files."""

import asyncio
import os
import secrets
from pathlib import Path
from typing import Self
from urllib.parse import quote

from attrs import frozen

from ...errors import ConfigurationError, UnavailableError
from ..reply import Reply
from .base import Begin, Envelope, NotBegun
from .outlast import outlast
from .urls import ProviderUrl


@frozen
class FileProvider:
    """A mail counts as sent when its file is whole, on disk and under its name.

    The name is the delivery's, so that a second copy replaces the first instead of standing beside it.
    """

    folder: Path
    name: str = "file"
    batch: int = 1
    renders: bool = True

    @classmethod
    def make(cls, url: ProviderUrl) -> Self:
        url.refuse_unknown()
        if url.host not in ("", "localhost") or not url.path.strip("/"):
            raise ConfigurationError("sender URL: file:// needs an absolute folder, file:///var/spool/letters")
        return cls(Path(url.path))

    async def open(self) -> None:
        try:
            await asyncio.to_thread(self._prove_writable)
        except OSError as error:
            raise UnavailableError(
                f"sender URL: cannot write into the folder {self.folder}: {_why(error)}; "
                "name another one or give it to the user who sends"
            ) from error

    async def send(self, envelope: Envelope, begin: Begin) -> Reply:
        """All that may take long or fail is done to a draft before the permit; after it comes one rename."""
        letter = self.folder / f"{quote(envelope.delivery, safe='')}.eml"
        draft = self.folder / f".{secrets.token_hex(8)}.part"
        try:
            await self._write(draft, envelope.content)
            await begin()
            return await self._publish(draft, letter)
        finally:
            draft.unlink(missing_ok=True)

    async def close(self) -> None:
        """There is nothing to give back."""

    def _prove_writable(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        probe = self.folder / f".{secrets.token_hex(8)}.part"
        _write_through(probe, b"")
        probe.unlink()

    async def _write(self, draft: Path, content: bytes) -> None:
        writing = asyncio.ensure_future(asyncio.to_thread(_write_through, draft, content))
        try:
            await asyncio.shield(writing)
        except OSError as error:
            raise NotBegun(Reply.lost("connect", f"cannot write into {self.folder}: {_why(error)}")) from error
        except asyncio.CancelledError:
            # The thread cannot be stopped; what it still writes is removed when it is done.
            await asyncio.wait({writing})
            raise

    async def _publish(self, draft: Path, letter: Path) -> Reply:
        naming = asyncio.ensure_future(asyncio.to_thread(_rename_through, draft, letter))
        if not await outlast(naming):
            return Reply.lost("eod", f"{letter.name}: cancelled while the file got its name")
        error = naming.exception()
        if error is None:
            return Reply("eod", 250, "2.0.0", f"written as {letter.name}")
        if not isinstance(error, OSError):
            raise error
        return Reply.lost("eod", f"{letter.name}: {_why(error)}")


def _write_through(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _rename_through(draft: Path, letter: Path) -> None:
    """The new name is on disk, too, when this returns."""
    draft.replace(letter)
    folder = os.open(letter.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _why(error: OSError) -> str:
    return error.strerror or type(error).__name__
