"""The server is killed in between: what it had promised is in the feed, once, and nothing else is."""

import random
from functools import partial

from postledger.database import Connection, Database
from postledger.projections import progress
from postledger.projections.verify import verify
from tests.eventually import eventually
from tests.sealing.storm import Storm
from tests.servers import PrivateServer
from tests.workers.mailing import Mailing


async def test_what_was_committed_comes_once_whenever_the_server_is_killed(own_server: PrivateServer) -> None:
    """A short storm of those that proof.py lets rage for long."""
    storm = Storm(own_server, random.Random(), writers=3)
    await storm.begin()
    for kill in (True, True, False):
        await storm.round(60, kill=kill)
    await storm.check()
    assert storm.tally["server kills"] == 2
    assert min(storm.tally[name] for name in ("commits", "rollbacks", "prepared", "crashes", "blocks")) > 0


async def test_progress_is_right_again_after_a_crash(own_server: PrivateServer) -> None:
    async with Database(own_server.dsn).connection() as conn:
        mailing = Mailing(Database(own_server.dsn), conn)
        campaign = await mailing.started("null://", [f"p{n}@example.net" for n in range(3000)])
        async with mailing.working() as worker:
            await eventually(partial(has_begun, conn, campaign), within=30)
            await own_server.kill()
            await own_server.start()
            async with Database(own_server.dsn).connection() as again:
                await Mailing(Database(own_server.dsn), again).until(campaign, "completed", within=60)
            assert worker.outcomes["Sent"]
    async with Database(own_server.dsn).connection() as conn:
        counted = await progress.read(conn, campaign)
        assert counted is not None
        assert counted.sent == 3000
        assert await conn.fetchrow(SAME, campaign) is not None
        assert (await verify(conn, None)).equal


async def has_begun(conn: Connection, campaign: int) -> None:
    assert await progress.read(conn, campaign) is not None


SAME = """
    SELECT FROM campaign_progress v JOIN progress p USING (campaign_id) WHERE campaign_id = $1
    AND (v.pending, v.sending, v.sent, v.failed, v.skipped, v.cancelled, v.unknown)
      = (p.pending, p.sending, p.sent, p.failed, p.skipped, p.cancelled, p.unknown)
"""
