"""A network between worker and server that can be cut, and can swallow everything without a word."""

import asyncio
from pathlib import Path
from urllib.parse import parse_qs, urlsplit


class Network:
    """Forwards TCP to a server's socket, until it is told to do otherwise."""

    def __init__(self, dsn: str) -> None:
        self._parts = urlsplit(dsn)
        self._flows = asyncio.Event()
        self._flows.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.dsn = ""

    async def __aenter__(self) -> "Network":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.username or "postgres"
        self.dsn = f"postgresql://{user}@127.0.0.1:{port}{self._parts.path}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        assert self._server is not None
        self._server.close()

    def freeze(self) -> None:
        """From now on nothing gets through, neither way, and nobody is told."""
        self._flows.clear()

    def thaw(self) -> None:
        """What was open is gone; new connections get through."""
        self.cut()
        self._flows.set()

    def cut(self) -> None:
        """Every connection ends at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await self._dial()
        ends = {writer, to_writer}
        self._writers |= ends
        try:
            await asyncio.gather(self._forward(reader, to_writer), self._forward(to_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.close()

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        folder = parse_qs(self._parts.query).get("host", [""])[0]
        if folder.startswith("/"):
            return await asyncio.open_unix_connection(Path(folder) / ".s.PGSQL.5432")
        return await asyncio.open_connection(self._parts.hostname, self._parts.port)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._flows.wait()
                writer.write(data)
        except OSError:
            pass  # cut
        writer.close()
