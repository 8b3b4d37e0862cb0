"""Words of the command line find what they mean, or say why not."""

import pytest

from postledger.errors import NotFoundError, UsageError
from postledger.projections.find import FoundCampaign, FoundRecipient, find_campaign, find_recipient
from tests.campaigns import change, draft, enqueue, started


def at(campaign):
    """A campaign that has one generation."""
    return FoundCampaign(campaign, "spring")


async def test_a_campaign_is_found_by_name_and_by_id(app):
    first, second = await draft(app, "spring"), await draft(app, "summer")
    assert await find_campaign(app, "summer") == FoundCampaign(second, "summer")
    assert await find_campaign(app, str(first)) == FoundCampaign(first, "spring")


async def test_a_name_goes_before_an_id(app):
    first = await draft(app, "spring")
    named = await draft(app, str(first))
    assert (await find_campaign(app, str(first))).id == named


@pytest.mark.parametrize("word", ["autumn", "7", "9223372036854775808", "-1", "", "\x00", "\ud800", "１"])
async def test_a_campaign_that_is_not_there_is_named(app, word):
    await draft(app, "spring")
    with pytest.raises(NotFoundError) as error:
        await find_campaign(app, word)
    assert repr(word) in str(error.value)
    assert "postledger campaign list" in str(error.value)


async def test_a_name_is_that_of_the_newest_generation(app):
    first = await draft(app, "receipts", kind="standing")
    await change(app, first, "Started")
    second = await app.fetchval("SELECT roll_campaign($1)", first)
    third = await app.fetchval("SELECT roll_campaign($1)", second)
    assert await find_campaign(app, "receipts") == FoundCampaign(third, "receipts", (third, second, first))
    assert await find_campaign(app, str(second)) == FoundCampaign(second, "receipts", (second,))


async def test_a_recipient_is_looked_for_in_all_generations(app):
    first = await draft(app, "receipts", kind="standing")
    await change(app, first, "Started")
    made = await app.fetchval("SELECT enqueue('receipts', 'a@example.org', 'order:1')")
    second = await app.fetchval("SELECT roll_campaign($1)", first)
    other = await app.fetchval("SELECT enqueue('receipts', 'b@example.org', 'order:2')")
    found = await find_campaign(app, "receipts")
    for word in ("order:1", "a@example.org", str(made)):
        who = await find_recipient(app, found, word)
        assert (who.campaign_id, who.delivery_id) == (first, made)
    assert (await find_recipient(app, found, "order:2")).campaign_id == second
    with pytest.raises(NotFoundError):
        await find_recipient(app, await find_campaign(app, str(first)), str(other))


@pytest.mark.parametrize("word", ["k2", "p2@example.org", " P2@Example.ORG\u00a0", "id"])
async def test_a_recipient_is_found_by_key_address_and_delivery_id(app, word):
    campaign = await started(app, 3)
    await started(app, 3, "other")
    row = await app.fetchrow(
        "SELECT delivery_id, recipient_key, email FROM recipients WHERE campaign_id = $1 AND recipient_key = 'k2'",
        campaign,
    )
    word = str(row["delivery_id"]) if word == "id" else word
    assert await find_recipient(app, at(campaign), word) == FoundRecipient(campaign, *row)


async def test_a_key_goes_before_an_address_and_that_before_an_id(app):
    campaign = await draft(app)
    await enqueue(app, campaign, [("b@example.org", "a@example.org"), ("c", "b@example.org")])
    ids = [row[0] for row in await app.fetch("SELECT delivery_id FROM recipients ORDER BY 1")]
    await enqueue(app, campaign, [(str(ids[0]), "d@example.org")])
    assert (await find_recipient(app, at(campaign), "b@example.org")).delivery_id == ids[0]
    assert (await find_recipient(app, at(campaign), str(ids[0]))).email == "d@example.org"
    assert (await find_recipient(app, at(campaign), str(ids[1]))).key == "c"


async def test_an_address_that_got_several_mails_is_ambiguous(app):
    campaign = await draft(app, kind="standing")
    await enqueue(app, campaign, [(f"order-{n}", "a@example.org") for n in range(9)])
    with pytest.raises(UsageError, match=r"give the delivery id instead \(\d+, \d+, \d+, \d+, \d+, \.\.\.\)"):
        await find_recipient(app, at(campaign), "a@example.org")
    assert (await find_recipient(app, at(campaign), "order-3")).email == "a@example.org"


async def test_somebody_erased_is_found_by_the_address(app, owner):
    campaign = await started(app, 2)
    await owner.execute(
        "UPDATE recipients SET email = NULL, recipient_key = 'erased', salt = NULL WHERE recipient_key = 'k1'"
    )
    found = await find_recipient(app, at(campaign), "p1@example.org")
    assert (found.key, found.email) == ("erased", None)


async def test_a_delivery_is_found_while_anything_knows_it(app, owner):
    campaign = await started(app, 1)
    delivery = await app.fetchval("SELECT delivery_id FROM recipient_queue")
    await owner.execute("DELETE FROM recipients; DELETE FROM recipient_queue")
    assert await find_recipient(app, at(campaign), str(delivery)) == FoundRecipient(campaign, delivery, None, None)


@pytest.mark.parametrize("word", ["k9", "p9@example.org", "0", "99999", "@", "\x00", ""])
async def test_a_recipient_who_is_not_there_is_named(app, word):
    campaign = await started(app, 2)
    with pytest.raises(NotFoundError) as error:
        await find_recipient(app, at(campaign), word)
    assert repr(word) in str(error.value)
    assert f"postledger campaign recipients {campaign}" in str(error.value)
