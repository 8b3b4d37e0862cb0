"""The catcher as a process of its own, which ends with the one that started it, however that ends."""

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from attrs import frozen

from ..errors import UnavailableError
from .behaviours import by_tag
from .catcher import Catcher
from .keepers import log_to

_ENDS_WITHIN = 5.0


@frozen
class Receiver:
    """A receiving server that does to a mail what the recipient's address asks for."""

    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}"

    def copies(self) -> Counter[str]:
        """How many copies it has accepted, by recipient."""
        return Counter(orjson.loads(line)["recipient"] for line in self.log.read_bytes().splitlines())


@asynccontextmanager
async def receiving(log: Path) -> AsyncIterator[Receiver]:
    """A running one; it writes a line per accepted mail into `log`. Raises UnavailableError."""
    # -P: a folder `http` where the user happens to stand must not hide the standard library's.
    command = (sys.executable, "-P", "-m", __name__, str(log))
    pipe = asyncio.subprocess.PIPE
    # A session of its own: Ctrl-C is for us, who still have mails under way.
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, start_new_session=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        port = (await child.stdout.readline()).decode().strip()
        if not port:
            raise UnavailableError("the built-in mail server did not start: its own words are above")
        yield Receiver(int(port), log)
    finally:
        child.stdin.close()
        try:
            await asyncio.wait_for(child.wait(), _ENDS_WITHIN)
        except TimeoutError:
            child.kill()
            await child.wait()


async def _serve(log: Path) -> None:
    """Says its port, and serves until its standard input ends."""
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ended.set)
    async with Catcher(by_tag, [log_to(log)], counting=False) as catcher:
        print(catcher.port, flush=True)
        await ended.wait()
        loop.remove_reader(sys.stdin.fileno())


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1])))
