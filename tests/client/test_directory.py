"""People, lists, suppressions, ways out and letters through the client, against the real service."""

from __future__ import annotations

import pytest

from postledger.client import Client, NotFoundError
from postledger.http.api.contacts import NewContact
from postledger.http.api.drafts import NewCampaign
from postledger.http.api.previews import MadeUp
from postledger.http.api.senders import NewSender
from postledger.http.api.suppressions import Lifting, NewSuppression
from postledger.http.api.templates import NewTemplate
from postledger.http.api.trials import Trial


async def test_people_and_lists(client: Client) -> None:
    ann = await client.keep_contact(NewContact("Ann@x.example", "Ann", {"town": "Ulm"}))
    assert (ann.email, ann.data) == ("ann@x.example", {"town": "Ulm"})
    assert (await client.contact(ann.id)) == (await client.find_contact("ANN@x.example"))
    digest = await client.create_list("digest")
    assert await client.subscribe(digest.id, NewContact("ann@x.example"))
    assert [one.id for one in (await client.list_contacts(digest.id)).items] == [ann.id]
    assert await client.unsubscribe(digest.id, "ann@x.example")
    assert not await client.unsubscribe(digest.id, "ann@x.example")
    assert [one.name for one in (await client.lists()).items] == ["digest"]
    assert await client.unsubscribe_everywhere("ann@x.example")
    assert [one.id for one in (await client.contacts()).items] == [ann.id]


async def test_suppressions(client: Client) -> None:
    made = await client.suppress(NewSuppression("gone@x.example", "asked by phone"))
    assert (await client.find_suppression("gone@x.example")).address_hash == made.address_hash
    assert [one.reason for one in (await client.suppressions()).items] == ["asked by phone"]
    await client.lift_suppression(Lifting("asked again", email="gone@x.example"))
    with pytest.raises(NotFoundError):
        await client.find_suppression("gone@x.example")


async def test_ways_out_letters_and_looks_at_them(client: Client) -> None:
    sender = await client.create_sender(NewSender(name="nowhere", url="null://", mail_from="Shop <news@shop.example>"))
    changed = await client.change_sender(sender.id, {"rate": "5/s"})
    assert (await client.sender(sender.id)).rate == changed.rate == "5/s"
    assert [one.id for one in (await client.senders()).items] == [sender.id]
    letter = await client.keep_template(NewTemplate("Hello {{ name }}", "<p>{{ unsubscribe_url }}</p>"))
    assert (await client.template(letter.hash)).subject == "Hello {{ name }}"
    assert [one.hash for one in (await client.templates()).items] == [letter.hash]
    campaign = await client.create_campaign(NewCampaign(name="spring", template=letter.hash, sender="nowhere"))
    assert not (await client.checklist(campaign.id)).ready
    shown = await client.preview(campaign.id, made_up=MadeUp("ann@x.example", "Ann"))
    assert shown.subject == "Hello Ann"
    tried = await client.send_test(campaign.id, Trial(("me@shop.example",), name="Ann"))
    assert [one.outcome for one in tried.items] == ["accepted"]
