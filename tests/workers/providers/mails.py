"""The mails that provider tests send, and the permits under which they do."""

from attrs import define

from postledger.workers.providers.base import Envelope, Provider, Withheld
from postledger.workers.replies import Reply

HEAD = b"Message-ID: <1@news.example.com>\r\nSubject: Hello\r\n\r\n"


@define
class Permit:
    """Counts how often it was asked; says no where `reason` is set."""

    asked: int = 0
    reason: str = ""

    async def __call__(self) -> None:
        self.asked += 1
        if self.reason:
            raise Withheld(self.reason)


def envelope(recipient: str = "ada@example.net", body: bytes = b"Dear Ada\r\n", delivery: str = "7.1") -> Envelope:
    return Envelope("news@news.example.com", recipient, HEAD + body, delivery)


async def send(provider: Provider, recipient: str = "ada@example.net", body: bytes = b"Dear Ada\r\n") -> Reply:
    return await provider.send(envelope(recipient, body), Permit())
