"""The live feed: complete, in order, once each; for one campaign or all; slow ones hold nothing up."""

from __future__ import annotations

import pytest

from postledger.database import Connection
from postledger.http.feed import hub as hub_module
from postledger.http.feed import ring as ring_module
from postledger.http.feed.context import HUB
from postledger.ledger import access
from postledger.ledger.sealing import seal_all
from postledger.projections.follow import Checkpoint
from tests.campaigns import WITHIN, change, draft, enqueue, people, started
from tests.eventually import eventually
from tests.web.conftest import Api
from tests.web.feed.sse import subscribed


async def feed_of(conn: Connection, campaign: int | None = None) -> list[int]:
    """All positions in the order of the sealed log."""
    rows = await conn.fetch("SELECT position, campaign_id FROM read_blocks(0::smallint, 0, 0, 1000000)")
    return [row["position"] for row in rows if campaign in (None, row["campaign_id"])]


async def test_what_is_committed_arrives_with_its_counts(api: Api, db: Connection) -> None:
    campaign = await draft(db)
    await seal_all(db)
    async with subscribed(api, f"?campaign={campaign}") as reader:
        await reader.until(lambda r: bool(r.progress))
        assert reader.progress[0]["audience"] == 0
        await enqueue(db, campaign, people(3))
        await change(db, campaign, "Started")
        await seal_all(db)
        await reader.until(lambda r: len(r.events) == 5 and r.progress[-1]["audience"] == 3)
    assert [event["type"] for event in reader.events] == ["Queued"] * 3 + ["RecipientsAdded", "Started"]
    assert reader.progress[-1]["status"] == "sending"
    assert reader.progress[-1]["counts"]["pending"] == 3


async def test_all_campaigns_and_contacts_come_in_the_log_s_order(api: Api, db: Connection) -> None:
    async with subscribed(api, "?only=events") as reader:
        await started(db, 3, "one")
        await started(db, 2, "two")
        await db.execute("SELECT suppress('x@example.org', 'complained', 'test')")
        await seal_all(db)
        wanted = await feed_of(db)
        await reader.until(lambda r: bool(r.events) and r.positions[-1] == wanted[-1])
    assert reader.positions == [at for at in wanted if at >= reader.positions[0]]
    assert {event["campaign_id"] for event in reader.events} >= {"0", "1", "2"}


async def test_it_goes_on_behind_any_event_it_ever_sent(api: Api, db: Connection) -> None:
    campaign = await started(db, 5)
    await seal_all(db)
    wanted = await feed_of(db, campaign)
    ids: list[str | None] = [None]
    async with subscribed(api, f"?campaign={campaign}&only=events&after={Checkpoint().encode()}") as reader:
        while len(reader.events) < len(wanted):
            before = len(reader.events)
            await reader.next()
            if len(reader.events) > before:
                ids.append(reader.last_id)
    assert reader.positions == wanted
    for count, last_id in enumerate(ids[1:-1], 1):
        async with subscribed(api, f"?campaign={campaign}&only=events", last_id=last_id) as again:
            await again.until(lambda r: bool(r.events) and r.positions[-1] == wanted[-1])
        assert again.positions == wanted[count:]


async def test_who_falls_behind_reads_the_log_and_catches_up(
    api: Api, db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_module, "MANY", 10)
    monkeypatch.setattr(hub_module, "PAGE", 7)
    campaign = await draft(db)
    async with subscribed(api, "?only=events") as slow, subscribed(api, f"?campaign={campaign}&only=events") as other:
        for number in range(10):
            await enqueue(db, campaign, people(30, first=1 + 30 * number))
            await seal_all(db)
        ring = api.app[HUB].ring
        wanted = await feed_of(db)
        await eventually(lambda: expect(ring.end.position >= wanted[-1]), within=WITHIN)
        assert not ring.covers(Checkpoint(1, wanted[0]))
        assert len(ring._entries) <= 20
        await slow.until(lambda r: bool(r.events) and r.positions[-1] == wanted[-1])
        await other.until(lambda r: bool(r.events) and r.positions[-1] == wanted[-1])
    assert slow.positions == [at for at in wanted if at >= slow.positions[0]]
    assert len(slow.events) >= 310
    assert other.positions == [at for at in await feed_of(db, campaign) if at >= other.positions[0]]


def expect(condition: bool) -> None:
    assert condition


async def test_one_connection_listens_whatever_the_number_of_streams(api: Api, db: Connection) -> None:
    async with subscribed(api), subscribed(api), subscribed(api), subscribed(api, "?only=progress") as last:
        await last.next()
        count = await db.fetchval("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postledger feed'")
        assert count == 1


async def test_nobody_reads_while_nobody_listens(api: Api, db: Connection) -> None:
    await started(db, 3)
    await seal_all(db)
    hub = api.app[HUB]
    async with subscribed(api) as reader:
        await reader.next()
        await eventually(lambda: expect(hub.reading), within=WITHIN)
    await eventually(lambda: expect(hub.wanted.streams == 0), within=WITHIN)
    await seal_all(db)
    hub.wake.set()
    await eventually(lambda: expect(not hub.reading), within=WITHIN)


async def test_the_reader_comes_back_when_its_connections_are_lost(api: Api, db: Connection, owner: Connection) -> None:
    campaign = await draft(db)
    async with subscribed(api, "?only=events") as reader:
        await eventually(lambda: expect(api.app[HUB].reading), within=WITHIN)
        for number in range(3):
            await owner.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'postledger feed%'"
            )
            await enqueue(db, campaign, people(5, first=1 + 5 * number))
            await seal_all(db)
        wanted = await feed_of(db)
        await reader.until(lambda r: bool(r.events) and r.positions[-1] == wanted[-1])
    assert reader.positions == [at for at in wanted if at >= reader.positions[0]]
    assert len(reader.events) >= 18


@pytest.mark.parametrize("last_id", ["nonsense", "AQAAAAAAAABkAAAAAAAAAAE"])
async def test_a_place_that_was_never_handed_out_is_refused_by_name(api: Api, last_id: str) -> None:
    found = await api.get("/v1/events/stream", headers={"Last-Event-ID": last_id})
    assert found.problem == (422, "invalid")
    assert found.json["field"] == "Last-Event-ID"
    found = await api.get("/v1/events", params={"after": last_id})
    assert found.problem == (422, "invalid")
    assert found.json["field"] == "after"


async def test_a_campaign_that_is_not_there_has_no_stream(api: Api) -> None:
    assert (await api.get("/v1/events/stream?campaign=77")).problem == (404, "not-found")


async def test_pages_give_the_log_once_each_in_order(api: Api, db: Connection) -> None:
    await started(db, 4, "one")
    campaign = await started(db, 3, "two")
    await seal_all(db)
    for query, wanted in ((f"&campaign={campaign}", await feed_of(db, campaign)), ("", await feed_of(db))):
        for limit in (1, 2, 5, 1000):
            found: list[int] = []
            after, more = "", True
            while more:
                page = (await api.get(f"/v1/events?limit={limit}{query}{after}")).json
                assert len(page["items"]) <= limit
                found += [int(item["position"]) for item in page["items"]]
                after, more = f"&after={page['next']}", page["more"]
            assert found == wanted
            again = (await api.get(f"/v1/events?limit={limit}{query}{after}")).json
            assert again == {"items": [], "next": page["next"], "more": False}


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x"])
async def test_a_page_has_a_size(api: Api, limit: str) -> None:
    found = await api.get(f"/v1/events?limit={limit}")
    assert found.problem == (422, "invalid")
    assert found.json["field"] == "limit"


async def test_a_key_that_is_revoked_ends_its_streams_and_no_other(api: Api, db: Connection) -> None:
    key = await api.new_key("read")
    async with (
        subscribed(api, key=key) as theirs,
        subscribed(api, "?only=progress", key=key) as quiet,
        subscribed(api) as ours,
    ):
        for reader in (theirs, quiet, ours):
            await reader.next()
        await eventually(lambda: expect(api.app[HUB].reading), within=WITHIN)
        await access.revoke(db, int(key.split("_")[1]))
        await seal_all(db)
        for reader in (theirs, quiet):
            with pytest.raises(EOFError):
                await reader.until(lambda _: False)
        await started(db, 2)
        await seal_all(db)
        await ours.until(lambda r: len(r.events) >= 4)


async def test_streams_end_when_the_service_does(api: Api) -> None:
    async with subscribed(api) as reader:
        await reader.next()
        api.app[HUB].end()
        with pytest.raises(EOFError):
            await reader.until(lambda _: False)
