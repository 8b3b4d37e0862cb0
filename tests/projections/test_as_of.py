"""What was true at a sealed moment stays so."""

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise

from attrs import evolve

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal
from postledger.projections.as_of import AsOf, as_of
from tests import campaigns
from tests.campaigns import claim, deferred, enlist, failed, people, sent, settle, started

TINY = timedelta(microseconds=1)


async def sealed_counts(conn: Connection, campaign: int) -> tuple[datetime, AsOf]:
    """Seals; the rows as they are at that moment, which nobody changes meanwhile."""
    block = await seal(conn)
    counts = dict.fromkeys(("pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown"), 0)
    query = "SELECT status::text, count(*) FROM recipient_queue WHERE campaign_id = $1 GROUP BY 1"
    counts |= dict(await conn.fetch(query, campaign))
    sealed_at = await conn.fetchval("SELECT sealed_at FROM blocks WHERE block_no = $1", block)
    return sealed_at, AsOf(block, sealed_at, counts, final=True, unsealed=0, ahead=False)


async def test_at_every_block_it_says_what_the_rows_said_then(app: Connection) -> None:
    campaign = await campaigns.draft(app)
    worker = await enlist(app)
    moments = [await sealed_counts(app, campaign)]
    await campaigns.enqueue(app, campaign, people(30))
    moments.append(await sealed_counts(app, campaign))
    await campaigns.change(app, campaign, "Started")
    for make in (sent, failed, deferred, sent):
        rows = (await claim(app, campaign, worker, 7)).rows
        moments.append(await sealed_counts(app, campaign))
        await settle(app, campaign, [make(row) for row in rows])
        moments.append(await sealed_counts(app, campaign))
        await started(app, 3, f"{len(moments)}")  # others go on as well
    await campaigns.change(app, campaign, "Cancelled")
    await claim(app, campaign, worker, 100)
    moments.append(await sealed_counts(app, campaign))
    assert len(moments) == 11
    assert await as_of(app, campaign, moments[-1][0]) == evolve(moments[-1][1], final=False)
    await campaigns.draft(app, "after it")
    await seal(app)
    for at, expected in moments:
        assert await as_of(app, campaign, at) == expected
    for (before, expected), (after, _) in pairwise(moments):
        assert before < after
        assert (await as_of(app, campaign, after - TINY)).counts == expected.counts
    nothing = await as_of(app, campaign, moments[0][0] - TINY)
    assert (nothing.block_no, nothing.sealed_at, Counter(nothing.counts)) == (None, None, Counter(moments[0][1].counts))


async def test_what_was_committed_late_belongs_to_the_later_block(app: Connection, database: str) -> None:
    """Its positions lie before those of the block that it is not in."""
    campaign = await started(app, 4)
    worker = await enlist(app)
    early, late = [(await claim(app, campaign, worker, 1)).rows[0] for _ in range(2)]
    await seal(app)
    async with Database(database).connection() as other:
        await other.execute("BEGIN")
        await settle(other, campaign, [sent(late)])
        await settle(app, campaign, [sent(early)])
        first = await sealed_counts(app, campaign)
        await other.execute("COMMIT")
    second = await sealed_counts(app, campaign)
    assert (first[1].counts["sent"], second[1].counts["sent"]) == (1, 2)
    for (at, expected), final in zip((first, second), (True, False), strict=True):
        assert await as_of(app, campaign, at) == evolve(expected, final=final)


FUTURE = datetime.fromisoformat("2099-01-01T00:00:00Z")


async def test_it_tells_what_may_still_come_to_it(app: Connection) -> None:
    """No time says that nothing will: only a later block does."""
    campaign = await started(app, 4)
    at, _ = await sealed_counts(app, campaign)
    [row] = (await claim(app, campaign, await enlist(app), 1)).rows
    for moment, ahead in ((at, False), (FUTURE, True)):
        then = await as_of(app, campaign, moment)
        assert (then.counts["pending"], then.final, then.unsealed, then.ahead) == (4, False, 1, ahead)
    await settle(app, campaign, [sent(row)])
    assert (await as_of(app, campaign, at)).unsealed == 2
    await seal(app)
    then = await as_of(app, campaign, at)
    assert (then.counts["pending"], then.final, then.unsealed) == (4, True, 0)
    then = await as_of(app, campaign, FUTURE)
    assert (then.counts["sent"], then.final, then.unsealed) == (1, False, 0)


async def test_where_nothing_is_sealed_nothing_was_true(app: Connection) -> None:
    campaign = await started(app, 4)
    then = await as_of(app, campaign, FUTURE)
    assert (then.block_no, then.sealed_at, sum(then.counts.values())) == (None, None, 0)
    assert (then.final, then.unsealed) == (False, await app.fetchval(EVENTS, campaign))


EVENTS = "SELECT count(*) FROM events WHERE campaign_id = $1"
