"""Who waits for the commit of a transaction that does many things at once."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from attrs import field, frozen

from ..errors import UnavailableError

A = TypeVar("A")


@frozen(eq=False)
class Waiting(Generic[A]):
    """One of a group: its answer comes after the commit."""

    _answer: asyncio.Future[A] = field(
        factory=lambda: asyncio.get_running_loop().create_future(), init=False, repr=False
    )

    @property
    def is_over(self) -> bool:
        """It has its answer, or whoever asked has gone."""
        return self._answer.done()

    def give(self, answer: A) -> None:
        """What it has waited for; the first answer stands."""
        if not self.is_over:
            self._answer.set_result(answer)

    def refuse(self, error: Exception) -> None:
        """The same, where there is none."""
        if not self.is_over:
            self._answer.set_exception(error)

    async def answered(self, within: float) -> A:
        """The answer. Raises what it was refused with, and UnavailableError when it does not come in time (seconds)."""
        try:
            async with asyncio.timeout(within):
                return await self._answer
        except TimeoutError:
            raise UnavailableError("the database does not answer in time") from None
