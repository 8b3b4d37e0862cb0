"""What an operator, a load balancer and Prometheus are told."""

import asyncio
import re

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from postledger.database import Connection, Database
from postledger.http.health import FRESH, LOOKS
from postledger.http.keys import STOPPING
from postledger.http.metrics import serving_metrics
from tests import campaigns
from tests.eventually import eventually
from tests.servers import PrivateServer
from tests.web.conftest import Api, open_api


async def samples(api: Api) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What /metrics says, as Prometheus' own parser reads it."""
    answer = await api.get("/metrics", key=None)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = text_string_to_metric_families(answer.content.decode())
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


async def checks(api: Api, status: int = 200) -> dict[str, bool]:
    answer = await api.get("/readyz", key=None)
    assert answer.status == status, answer.content
    return {check["name"]: check["ok"] for check in answer.json["checks"]}


async def look_anew(api: Api) -> None:
    api.app[LOOKS]._until = 0.0


async def test_alive_and_ready(api: Api):
    assert (await api.get("/healthz", key=None)).json == {"status": "ok"}
    found = await checks(api)
    assert [found[name] for name in ("process", "database", "schema")] == [True] * 3
    assert not found["workers"]  # nobody sends: a word, and no reason to take requests elsewhere
    assert (await api.get("/readyz", key=None)).json["ready"] is True


async def test_a_campaign_that_does_not_go_on_is_named(api: Api, db: Connection):
    campaign = await campaigns.started(db, 3)
    await db.fetchval("SELECT pause_campaign($1, 'provider_auth', NULL)", campaign)
    answer = (await api.get("/readyz", key=None)).json
    assert answer["ready"] is True
    assert answer["stuck"] == [
        {"id": str(campaign), "status": "paused", "cause": "paused, provider_auth, until somebody resumes it"}
    ]


async def test_another_schema_is_not_ready(api: Api, owner: Connection):
    await owner.execute("INSERT INTO schema_version (version) SELECT max(version) + 1 FROM schema_version")
    answer = await api.get("/readyz", key=None)
    assert answer.status == 503
    (schema,) = [check for check in answer.json["checks"] if not check["ok"] and check["required"]]
    assert "this program needs" in schema["detail"]
    assert (await samples(api))["postledger_schema_version", ()] == await owner.fetchval(
        "SELECT max(version) FROM schema_version"
    )


async def test_who_is_ending_is_not_ready(api: Api):
    api.app[STOPPING].set()
    assert not (await checks(api, 503))["process"]
    assert (await api.get("/healthz", key=None)).status == 200


async def test_a_database_that_is_away_is_said_in_time(own_server: PrivateServer):
    async with open_api(own_server.dsn) as api:
        assert (await checks(api))["database"]
        await own_server.stop("immediate")
        await look_anew(api)
        assert not (await checks(api, 503))["database"]
        answer = await api.get("/readyz", key=None)
        assert b"127.0.0.1" not in answer.content
        assert b"postgres" not in answer.content
        assert (await api.get("/healthz", key=None)).status == 200
        assert (await samples(api))["postledger_database_up", ()] == 0
        await own_server.start()

        async def back():
            await look_anew(api)
            assert (await checks(api))["database"]

        await eventually(back, within=30)


async def test_a_database_that_does_not_answer_is_said_in_time(
    api: Api, owner: Connection, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("postledger.http.health.WITHIN", 0.2)
    async with owner.transaction():
        await owner.execute("LOCK TABLE campaigns IN ACCESS EXCLUSIVE MODE")
        assert not (await checks(api, 503))["database"]
        await owner.execute("LOCK TABLE schema_version IN ACCESS EXCLUSIVE MODE")
        await look_anew(api)
        assert not (await checks(api, 503))["database"]
        assert (await samples(api))["postledger_database_up", ()] == 0
    await look_anew(api)
    assert (await checks(api))["database"]


async def test_one_look_serves_all_who_ask(api: Api, db: Connection):
    await look_anew(api)
    await asyncio.gather(*(api.get("/readyz", key=None) for _ in range(20)))
    looks = api.app[LOOKS]
    assert await looks.look() is await looks.look()
    assert FRESH > 0


async def test_depth_age_and_requests(api: Api, db: Connection):
    campaign = await campaigns.started(db, 4)
    await db.fetchval("SELECT seal()")
    while await db.fetchval("SELECT follow_progress(1000)"):
        pass
    await api.get("/healthz", key=None)
    await api.get("/u/not-a-token", key=None)
    await look_anew(api)
    found = await samples(api)
    labels = (("campaign", str(campaign)), ("status", "pending"))
    assert found["postledger_deliveries", labels] == 4
    assert found["postledger_queue_age_seconds", (("campaign", str(campaign)),)] >= 0
    assert found["postledger_campaigns", (("status", "sending"),)] == 1
    assert found["postledger_database_up", ()] == 1
    for name in (
        *("seal_lag_seconds", "unsealed_events", "oldest_snapshot_seconds", "oldest_claim_seconds", "in_flight"),
        *("workers", "workers_deaf", "workers_missing", "notification_queue", "feed_listening", "process_listening"),
    ):
        assert (f"postledger_{name}", ()) in found, name
    requests = {
        dict(labels)["route"]: value
        for (name, labels), value in found.items()
        if name == "postledger_http_request_seconds_count" and dict(labels)["method"] == "GET"
    }
    assert requests["/u/{token}"] >= 1
    assert not any("not-a-token" in str(key) for key in found)
    for name in ("claim", "settle", "wake", "seal", "recovery"):
        assert (f"postledger_{name}_seconds_count", ()) in found, name


async def test_a_worker_tells_what_only_it_knows(database: str, app: Connection):
    """Its own address; the service beside it tells of the installation."""
    from tests.workers.mailing import Mailing

    async with serving_metrics(("127.0.0.1", 0)) as url, aiohttp.ClientSession() as session:

        async def own() -> dict[str, float]:
            async with session.get(f"{url}/metrics") as answer:
                text = await answer.text()
            return {
                f"{one.name}{sorted(one.labels.items())}": one.value
                for family in text_string_to_metric_families(text)
                for one in family.samples
            }

        sent = "postledger_outcomes_total[('class', 'success'), ('event', 'Sent'), ('provider', 'null')]"
        before = await own()
        mailing = Mailing(Database(database), app)
        campaign = await mailing.started("null://", [f"p{n}@example.org" for n in range(20)])
        async with mailing.working():
            await mailing.until(campaign, "completed")

            async def working():
                assert (await own())["postledger_process_workers[]"] >= 1

            await eventually(working)
        after = await own()
        assert after[sent] - before.get(sent, 0) == 20
        for name in ("claim", "settle", "seal"):
            count = f"postledger_{name}_seconds_count[]"
            assert after[count] > before[count]
        assert after["postledger_claimed_total[]"] - before["postledger_claimed_total[]"] == 20
        async with session.get(f"{url}/healthz") as answer:
            assert answer.status == 200
        assert re.search("postledger_send_seconds_count.*null", " ".join(after))
