"""What becomes of a recipient, by what the relay says: one worker, a real database, a real relay."""

from tests.workers.conftest import MakeInbox
from tests.workers.mailing import Mailing, addresses


async def test_everybody_gets_one_copy(mailing: Mailing, inbox: MakeInbox) -> None:
    relay = await inbox()
    campaign = await mailing.started(relay.url, addresses(120))

    async with mailing.working(concurrency=10):
        await mailing.until(campaign, "completed")

    assert relay.received == dict.fromkeys(addresses(120), 1)
    assert await mailing.counts(campaign) == {"sent": 120}
    await mailing.check(campaign)
