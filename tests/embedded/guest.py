"""A process that uses the private PostgreSQL until a line arrives on its input."""

import asyncio
import sys
from pathlib import Path

from postledger.embedded import running
from postledger.errors import PostledgerError


async def main(data: Path) -> None:
    async with running(data) as dsn:
        print(dsn, flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.readline()


if sys.argv[1] != "--check":
    try:
        asyncio.run(main(Path(sys.argv[1])))
    except PostledgerError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
