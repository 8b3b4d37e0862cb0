"""What a provider is: the one way a mail leaves, whatever carries it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, runtime_checkable

from attrs import field, frozen

from ..reply import Reply

Begin = Callable[[], Awaitable[None]]
"""The permit. A provider awaits it when its connection is ready, right before the first step that is about
this mail; and once more where a reused connection turned out to be dead and the mail begins again."""


class Withheld(Exception):  # noqa: N818 - the permit's "no" is no error
    """The permit says no. A provider lets it pass untouched; its connection stays usable."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotBegun(Exception):  # noqa: N818 - nothing went wrong with the mail: it has not begun
    """The relay could not be reached or refused the session: the whole sender waits, this mail is untouched."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.text)
        self.reply = reply


@frozen
class Envelope:
    """One mail for one recipient. `content` is the exact bytes with CRLF line ends; `delivery` is our id."""

    sender: str
    recipient: str
    content: bytes = field(repr=False)
    delivery: str


class Provider(Protocol):
    """One file per provider; a new one needs a line in `registry.py` or an entry point of its group.

    `send` may be called by many tasks at once, up to the concurrency that the provider was made with.
    """

    @property
    def name(self) -> str:
        """What events call it: smtp, file, null."""
        ...

    @property
    def batch(self) -> int:
        """How many recipients one call carries: 1, or 500 where mails leave by the hundred."""
        ...

    @property
    def renders(self) -> bool:
        """Whether it looks at the message; False spares the rendering."""
        ...

    async def open(self) -> None:
        """Checks what can be checked without sending; raises UnavailableError or ConfigurationError."""
        ...

    async def send(self, envelope: Envelope, begin: Begin) -> Reply:
        """Hands one mail over and returns the reply that decides: stage `eod` and 2xx where it was taken.

        Raises NotBegun, or what `begin` raised, and then nothing of this mail has left. A cancellation is
        raised as such only while it is certain that the mail was not taken; past that point `send` waits for
        the reply, for a bounded time, and returns what is true (code None: unknown) instead of raising.
        """
        ...

    async def close(self) -> None:
        """Gives its connections back; nobody sends any more."""
        ...


@runtime_checkable
class BatchProvider(Provider, Protocol):
    """A provider one call of which carries many mails (`batch` > 1)."""

    async def send_batch(self, envelopes: Sequence[Envelope]) -> Sequence[Reply]:
        """Hands mails over that all have their permit; one reply each, in order. Raises as `send` does."""
        ...
