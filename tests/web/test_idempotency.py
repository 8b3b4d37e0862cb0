"""Idempotency-Key: one effect, one answer, whatever dies in between."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from postledger.database import Connection
from tests.eventually import eventually
from tests.web.campaigns import act, asked, new_campaign, null_sender, people
from tests.web.conftest import Api
from tests.web.test_serve import key_of, running

KEY = {"Idempotency-Key": "order-1001"}


async def test_the_same_again_is_answered_the_same_and_done_once(api: Api, db: Connection):
    await null_sender(api)
    first = await api.post("/v1/campaigns", asked(), headers=KEY)
    assert (first.status, "Idempotent-Replayed" in first.headers) == (201, False)
    assert (await act(api, first.json, "cancel")).status == 200  # the answer is the one of then, whatever came after
    again = await api.post("/v1/campaigns", asked(), headers=KEY)
    assert (again.status, again.content) == (first.status, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    for name in ("ETag", "Location", "Content-Type"):
        assert again.headers[name] == first.headers[name], name
    assert await db.fetchval("SELECT count(*) FROM campaigns") == 1


async def test_the_same_json_is_the_same_request_however_it_is_written(api: Api):
    await null_sender(api)
    first = await api.post("/v1/campaigns", asked(), headers=KEY)
    other_way = json.dumps(dict(reversed(asked().items())), indent=3).encode()
    headers = {**KEY, "Content-Type": "application/json"}
    again = await api.call("POST", "/v1/campaigns", data=other_way, headers=headers)
    assert again.content == first.content


async def test_another_request_with_the_key_is_refused(api: Api, db: Connection):
    await null_sender(api)
    first = await api.post("/v1/campaigns", asked(), headers=KEY)
    other = await api.post("/v1/campaigns", asked(name="summer"), headers=KEY)
    assert other.problem == (422, "key-reused")
    elsewhere = await act(api, first.json, "cancel", headers=KEY)
    assert elsewhere.problem == (422, "key-reused")
    assert await db.fetchval("SELECT count(*) FROM campaigns") == 1
    assert await db.fetchval("SELECT status::text FROM campaigns") == "draft"


async def test_a_key_belongs_to_the_caller(api: Api, db: Connection):
    await null_sender(api)
    assert (await api.post("/v1/campaigns", asked(), headers=KEY)).status == 201
    another = await api.new_key("send")
    assert (await api.post("/v1/campaigns", asked(name="summer"), headers=KEY, key=another)).status == 201
    assert await db.fetchval("SELECT count(*) FROM campaigns") == 2


async def test_what_was_refused_leaves_the_key_free(api: Api, db: Connection):
    wrong = await api.post("/v1/campaigns", asked(), headers=KEY)
    assert wrong.problem == (422, "invalid")  # there is no such sender
    assert await db.fetchval("SELECT count(*) FROM idempotency_keys") == 0
    await null_sender(api)
    assert (await api.post("/v1/campaigns", asked(), headers=KEY)).status == 201


async def test_of_many_at_once_one_is_done_and_the_others_wait_or_repeat(api: Api, db: Connection):
    campaign = await new_campaign(api)
    await people(api, campaign, 1)
    await act(api, campaign, "start")
    answers = await asyncio.gather(*(act(api, campaign, "pause", headers=KEY) for _ in range(20)))
    statuses = Counter(answer.status for answer in answers)
    assert statuses[200] >= 1
    assert set(statuses) <= {200, 409}
    assert len({answer.content for answer in answers if answer.status == 200}) == 1
    for answer in answers:
        if answer.status == 409:
            assert answer.problem == (409, "in-progress")
            assert int(answer.headers["Retry-After"]) > 0
    paused = "SELECT count(*) FROM events WHERE campaign_id = $1 AND type = 'Paused'"
    assert await db.fetchval(paused, int(campaign["id"])) == 1


async def test_while_the_first_is_under_way_the_second_is_told_to_come_again(api: Api, owner: Connection):
    """The first one waits for a lock that the test holds; the second does not wait for the first."""
    campaign = await new_campaign(api)
    await people(api, campaign, 1)
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", int(campaign["id"]))
        first = asyncio.create_task(act(api, campaign, "start", headers=KEY))

        async def waits() -> None:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            assert await owner.fetchval(waiting) == 1

        await eventually(waits, within=20)
        second = await act(api, campaign, "start", headers=KEY)
        assert second.problem == (409, "in-progress")
    assert (await first).status == 200
    third = await act(api, campaign, "start", headers=KEY)
    assert (third.status, third.headers["Idempotent-Replayed"]) == (200, "true")


async def test_who_waits_too_long_for_a_lock_is_told_to_come_again(api: Api, owner: Connection):
    campaign = await new_campaign(api)
    await people(api, campaign, 1)
    async with owner.transaction():
        await owner.execute("SELECT pg_advisory_xact_lock(lock_key('campaign', $1))", int(campaign["id"]))
        answer = await act(api, campaign, "start", headers=KEY)
    assert answer.problem == (503, "unavailable")
    assert int(answer.headers["Retry-After"]) > 0
    assert (await act(api, campaign, "start", headers=KEY)).status == 200  # the key was left free


async def test_an_answer_is_forgotten_after_a_day(api: Api, owner: Connection):
    await null_sender(api)
    first = await api.post("/v1/campaigns", asked(), headers=KEY)
    await owner.execute("UPDATE idempotency_keys SET created_at = clock() - interval '24 hours 1 second'")
    late = await api.post("/v1/campaigns", asked(), headers=KEY)
    assert late.problem == (409, "conflict")  # it is tried anew, and the name is taken
    other = await api.post("/v1/campaigns", asked(name="summer"), headers={"Idempotency-Key": "another"})
    assert other.status == 201
    kept = await owner.fetch("SELECT key FROM idempotency_keys")
    assert [row["key"] for row in kept] == ["another"]  # whoever writes one takes expired ones away
    new = await api.post("/v1/campaigns", asked(name="autumn"), headers=KEY)
    assert (new.status, new.json["id"] == first.json["id"]) == (201, False)


async def test_what_is_no_key_is_refused(api: Api):
    await null_sender(api)
    for written in ("", " ", "a b", "x" * 201, "k\xe9y"):
        answer = await api.post("/v1/campaigns", asked(), headers={"Idempotency-Key": written})
        assert answer.problem == (400, "malformed"), written
        assert answer.json["field"] == "Idempotency-Key"


ENDS = """
    CREATE FUNCTION public.kill_{moment}() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NOTIFY at_the_moment;
        PERFORM pg_advisory_lock_shared(4711);
        RETURN NULL;
    END $$;
    CREATE {constraint} TRIGGER kill_{moment} AFTER INSERT ON postledger.{table} {deferred}
    FOR EACH ROW EXECUTE FUNCTION public.kill_{moment}();
"""


@pytest.mark.parametrize(
    ("table", "deferred"),
    [("campaigns", False), ("idempotency_keys", False), ("idempotency_keys", True)],
    ids=["after the effect", "after the key", "at the commit"],
)
async def test_killed_anywhere_effect_and_key_are_there_together_or_not_at_all(
    database: str, owner: Connection, tmp_path: Path, table: str, deferred: bool
):
    """The service is killed, as by `kill -9`, while its transaction stands at the moment in question."""
    key = await key_of(database)
    async with running(tmp_path, "serve", dsn=database, key=key) as service:
        await service.ask("POST", "/v1/senders", {"name": "nowhere", "url": "null://"})
        await owner.execute(
            ENDS.format(
                moment="now",
                table=table,
                constraint="CONSTRAINT" if deferred else "",
                deferred="DEFERRABLE INITIALLY DEFERRED" if deferred else "",
            )
        )
        await owner.execute("SELECT pg_advisory_lock(4711)")
        posting = asyncio.create_task(_post(service.session, service.url, key))

        async def stands() -> None:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711 AND NOT granted"
            assert await owner.fetchval(waiting) == 1

        await eventually(stands, within=30)
        service.process.send_signal(signal.SIGKILL)
        with pytest.raises(aiohttp.ClientError):
            await posting
        await service.process.wait()
        await owner.execute("SELECT pg_advisory_unlock(4711)")
        await owner.execute(f"DROP TRIGGER kill_now ON {table}")  # waits until the transaction is over

    counts = "SELECT (SELECT count(*) FROM campaigns), (SELECT count(*) FROM idempotency_keys)"
    effect, kept = await owner.fetchrow(counts)
    assert effect == kept
    async with running(tmp_path, "serve", dsn=database, key=key) as service:
        status, body, replayed = await _post(service.session, service.url, key)
        assert (status, replayed) == (201, bool(kept)), body
    assert tuple(await owner.fetchrow(counts)) == (1, 1)
    assert await owner.fetchval("SELECT count(*) FROM events WHERE type = 'Drafted'") == 1


async def _post(session: aiohttp.ClientSession, url: str, key: str) -> tuple[int, str, bool]:
    headers = {"Authorization": f"Bearer {key}", **KEY}
    async with session.post(f"{url}/v1/campaigns", json=asked(), headers=headers) as answer:
        return answer.status, await answer.text(), "Idempotent-Replayed" in answer.headers
