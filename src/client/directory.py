"""The API's other half as methods: people, lists, suppressions, ways out, letters, and a mail before it goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..http.api.contacts import Changed, Contact, Contacts, NewContact, Person
from ..http.api.lists import List, Lists, NewList
from ..http.api.previews import MadeUp, Preview
from ..http.api.senders import NewSender, Sender, SenderChange, Senders
from ..http.api.suppressions import Lifted, Lifting, NewSuppression, Suppression, Suppressions
from ..http.api.templates import NewTemplate, Template, Templates
from ..http.api.trials import Trial, Trials
from .transport import Transport, json_call


class Directory:
    """What a Client has beside campaigns and the log; addresses go in bodies, never into URLs."""

    transport: Transport

    async def keep_contact(self, person: NewContact) -> Contact:
        """Somebody, new or known: name and data are those that are given."""
        return await self.transport.ask(json_call("POST", "/v1/contacts", person), Contact)

    async def contact(self, contact_id: int) -> Contact:
        """Somebody by id."""
        return await self.transport.ask(json_call("GET", f"/v1/contacts/{contact_id}"), Contact)

    async def find_contact(self, email: str) -> Contact:
        """Somebody by address."""
        return await self.transport.ask(json_call("POST", "/v1/contacts/lookup", Person(email)), Contact)

    async def contacts(self, *, after: str | None = None, limit: int | None = None) -> Contacts:
        """A page of all of them."""
        return await self.transport.ask(json_call("GET", "/v1/contacts", after=after, limit=limit), Contacts)

    async def unsubscribe_everywhere(self, email: str) -> bool:
        """Off all lists and suppressed; False: that was so already."""
        call = json_call("POST", "/v1/contacts/unsubscribe", Person(email))
        return (await self.transport.ask(call, Changed)).changed

    async def create_list(self, name: str) -> List:
        """A list of contacts."""
        return await self.transport.ask(json_call("POST", "/v1/lists", NewList(name)), List)

    async def lists(self) -> Lists:
        """All of them."""
        return await self.transport.ask(json_call("GET", "/v1/lists"), Lists)

    async def list_contacts(self, list_id: int, *, after: str | None = None, limit: int | None = None) -> Contacts:
        """A page of who is on a list."""
        call = json_call("GET", f"/v1/lists/{list_id}/contacts", after=after, limit=limit)
        return await self.transport.ask(call, Contacts)

    async def subscribe(self, list_id: int, person: NewContact) -> bool:
        """Because the person said so; False: that was so already."""
        call = json_call("POST", f"/v1/lists/{list_id}/subscribe", person)
        return (await self.transport.ask(call, Changed)).changed

    async def unsubscribe(self, list_id: int, email: str) -> bool:
        """Off one list; False: that was so already."""
        call = json_call("POST", f"/v1/lists/{list_id}/unsubscribe", Person(email))
        return (await self.transport.ask(call, Changed)).changed

    async def suppress(self, new: NewSuppression) -> Suppression:
        """From now on nobody mails this address."""
        return await self.transport.ask(json_call("POST", "/v1/suppressions", new), Suppression)

    async def suppressions(self, *, after: str | None = None, limit: int | None = None) -> Suppressions:
        """A page of all of them, by the hash of the address."""
        return await self.transport.ask(json_call("GET", "/v1/suppressions", after=after, limit=limit), Suppressions)

    async def find_suppression(self, email: str) -> Suppression:
        """Why nobody mails this address. Raises NotFoundError where everybody may."""
        return await self.transport.ask(json_call("POST", "/v1/suppressions/lookup", Person(email)), Suppression)

    async def lift_suppression(self, lifting: Lifting) -> Lifted:
        """It may be mailed again."""
        return await self.transport.ask(json_call("POST", "/v1/suppressions/lift", lifting), Lifted)

    async def create_sender(self, new: NewSender) -> Sender:
        """A way out."""
        return await self.transport.ask(json_call("POST", "/v1/senders", new), Sender)

    async def sender(self, sender_id: int) -> Sender:
        """One of them, without its secret."""
        return await self.transport.ask(json_call("GET", f"/v1/senders/{sender_id}"), Sender)

    async def senders(self, *, after: str | None = None, limit: int | None = None) -> Senders:
        """A page of them."""
        return await self.transport.ask(json_call("GET", "/v1/senders", after=after, limit=limit), Senders)

    async def change_sender(self, sender_id: int, changes: SenderChange | Mapping[str, Any]) -> Sender:
        """Another URL, secret, address or rate. What is to become null is said in a mapping, by its public name."""
        return await self.transport.ask(json_call("PATCH", f"/v1/senders/{sender_id}", changes), Sender)

    async def keep_template(self, new: NewTemplate) -> Template:
        """A letter, by the hash of what it says."""
        return await self.transport.ask(json_call("POST", "/v1/templates", new), Template)

    async def template(self, template_hash: str) -> Template:
        """The letter of this hash."""
        return await self.transport.ask(json_call("GET", f"/v1/templates/{template_hash}"), Template)

    async def templates(self, *, after: str | None = None, limit: int | None = None) -> Templates:
        """A page of them."""
        return await self.transport.ask(json_call("GET", "/v1/templates", after=after, limit=limit), Templates)

    async def preview(
        self, campaign_id: int, *, delivery_id: int | None = None, made_up: MadeUp | None = None
    ) -> Preview:
        """The mail as it would go: to the first recipient, to one of them, or to somebody made up."""
        path = f"/v1/campaigns/{campaign_id}/preview"
        call = json_call("GET", path, delivery_id=delivery_id) if made_up is None else json_call("POST", path, made_up)
        return await self.transport.ask(call, Preview)

    async def send_test(self, campaign_id: int, trial: Trial) -> Trials:
        """The mail to some addresses of yours, now. Not repeated where its answer is lost: it may have gone."""
        call = json_call("POST", f"/v1/campaigns/{campaign_id}/test", trial, once=True)
        return await self.transport.ask(call, Trials)
