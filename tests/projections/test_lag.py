"""How far blocks and followers are behind, for whoever asks."""

from datetime import timedelta

from postledger.database import Connection, Database
from postledger.ledger.sealing import seal
from postledger.projections import progress
from postledger.projections.lag import read_lag
from tests import campaigns
from tests.clock import NOON, set_clock, stop_clock


async def test_what_is_in_no_block_is_counted_from_its_oldest(
    app: Connection, owner: Connection, database: str
) -> None:
    await stop_clock(owner)
    events = await app.fetchval("SELECT count(*) FROM events")
    lag = await read_lag(app)
    assert (lag.block_no, lag.sealed_at, lag.unsealed) == (None, None, events)
    assert lag.behind == {"progress": 0}
    await seal(app)
    lag = await read_lag(app)
    assert (lag.block_no, lag.sealed_at, lag.unsealed, lag.oldest_in) == (1, NOON, 0, None)
    assert lag.behind == {"progress": 1}
    async with Database(database).connection() as other:
        await other.execute("BEGIN")
        await campaigns.draft(other, "open")
        assert (await read_lag(app)).unsealed == 0  # nobody can seal what is not committed
        await set_clock(owner, NOON + timedelta(seconds=5))
        await campaigns.draft(app, "later")
        await seal(app)
        await other.execute("COMMIT")
        await set_clock(owner, NOON + timedelta(seconds=7))
        await campaigns.draft(app, "last")
        lag = await read_lag(app)
        assert (lag.block_no, lag.unsealed, lag.oldest_in) == (2, 2, timedelta(seconds=7))
    assert await progress.follow(app)
    assert (await read_lag(app)).behind == {"progress": 0}
