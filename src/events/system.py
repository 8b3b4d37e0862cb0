"""What may happen to the installation as a whole."""

from typing import ClassVar, TypeAlias

from attrs import frozen

from .stream import Event, StreamKind


@frozen
class _System(Event):
    stream: ClassVar[StreamKind] = StreamKind.SYSTEM


@frozen
class Migrated(_System):
    """The schema was brought to `version`."""

    type: ClassVar[str] = "Migrated"
    version: int


@frozen
class KeyCreated(_System):
    """An API key was made; `key` is its id."""

    type: ClassVar[str] = "KeyCreated"
    key: str
    scopes: tuple[str, ...]


@frozen
class KeyRevoked(_System):
    """An API key was withdrawn."""

    type: ClassVar[str] = "KeyRevoked"
    key: str


@frozen
class SenderChanged(_System):
    """A sender was made, or its settings changed: `rate` as in 100/s, or `off`."""

    type: ClassVar[str] = "SenderChanged"
    sender: str
    rate: str | None = None


@frozen
class EpochBegun(_System):
    """The log goes on under a new epoch: after a restore or an import."""

    type: ClassVar[str] = "EpochBegun"
    epoch: int
    reason: str


SystemEvent: TypeAlias = Migrated | KeyCreated | KeyRevoked | SenderChanged | EpochBegun
