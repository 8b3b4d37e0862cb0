"""What may happen to a contact: an address that needs a history of its own."""

from typing import ClassVar, TypeAlias

from attrs import frozen

from .stream import Event, StreamKind


@frozen
class _Contact(Event):
    stream: ClassVar[StreamKind] = StreamKind.CONTACT


@frozen
class ContactAdded(_Contact):
    """The address was written down."""

    type: ClassVar[str] = "ContactAdded"


@frozen
class Subscribed(_Contact):
    """It joined a list; `source` is the import, or who said that the person wants to."""

    type: ClassVar[str] = "Subscribed"
    list: str
    source: str | None = None


@frozen
class ContactUnsubscribed(_Contact):
    """It left a list; `source` is the mail, the page or the operator that said so."""

    type: ClassVar[str] = "Unsubscribed"
    list: str
    source: str


@frozen
class Suppressed(_Contact):
    """It must get no mail at all any more."""

    type: ClassVar[str] = "Suppressed"
    reason: str
    source: str


@frozen
class Unsuppressed(_Contact):
    """An operator allows mail again."""

    type: ClassVar[str] = "Unsuppressed"
    by: str
    reason: str


@frozen
class Erased(_Contact):
    """The person's data is gone from every table; events never had any."""

    type: ClassVar[str] = "Erased"


ContactEvent: TypeAlias = ContactAdded | Subscribed | ContactUnsubscribed | Suppressed | Unsuppressed | Erased
