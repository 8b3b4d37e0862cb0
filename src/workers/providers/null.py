"""`null://`: accepts everything at once and keeps nothing, to try a campaign and to measure all the rest."""

from collections.abc import Sequence
from typing import Self

from attrs import frozen

from ...errors import ConfigurationError
from ..reply import Reply
from .base import Begin, Envelope
from .urls import ProviderUrl

TAKEN = Reply("eod", 250, "2.0.0", "accepted and thrown away")


@frozen
class NullProvider:
    """500 recipients to a call and no look at a message; with `?render=1` a look, and one at a time."""

    renders: bool = False
    name: str = "null"

    @property
    def batch(self) -> int:
        return 1 if self.renders else 500

    @classmethod
    def make(cls, url: ProviderUrl) -> Self:
        url.refuse_unknown("render")
        if url.host or url.path:
            raise ConfigurationError("sender URL: null:// goes nowhere, so it takes no host and no path")
        return cls(renders=url.choice("render", "0", "1", default="0") == "1")

    async def open(self) -> None:
        """There is nothing that could be missing."""

    async def send(self, envelope: Envelope, begin: Begin) -> Reply:
        del envelope
        await begin()
        return TAKEN

    async def send_batch(self, envelopes: Sequence[Envelope]) -> Sequence[Reply]:
        return [TAKEN] * len(envelopes)

    async def close(self) -> None:
        """There is nothing to give back."""
