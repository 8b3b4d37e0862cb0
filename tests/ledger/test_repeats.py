"""The same people again, with statistics older than their campaign: each costs a look-up, none reads the campaign."""

import pytest

from postledger.database import Connection
from tests import campaigns
from tests.campaigns import people

PEOPLE = 1500


async def rows_read(owner: Connection) -> int:
    """Entries of the index by campaign that were read so far, by anybody."""
    await owner.execute("SELECT pg_stat_clear_snapshot()")
    return await owner.fetchval(
        "SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE indexrelid = 'recipients_id'::regclass"
    )


@pytest.mark.parametrize("suppressed", [False, True])
async def test_it_costs_no_more_than_a_look_at_each(app: Connection, owner: Connection, suppressed: bool) -> None:
    await owner.execute("ALTER TABLE recipients SET (autovacuum_enabled = false)")
    for name in ("first", "second"):
        await campaigns.enqueue(app, await campaigns.draft(app, name), people(PEOPLE))
    await owner.execute("ANALYZE recipients")

    if suppressed:
        await app.execute("SELECT suppress(email, 'operator', 'test') FROM recipients WHERE campaign_id = 1")
    campaign = await campaigns.draft(app, "younger than the statistics")
    before = await rows_read(owner)
    first = await campaigns.enqueue(app, campaign, people(PEOPLE))
    again = await campaigns.enqueue(app, campaign, people(PEOPLE + 1))
    await app.execute("SELECT pg_stat_force_next_flush()")
    assert (first["suppressed"] > 0) == suppressed
    assert (again["accepted"], again["duplicate_key"] + again["duplicate_address"]) == (1, PEOPLE)
    assert await rows_read(owner) - before < 20 * PEOPLE
