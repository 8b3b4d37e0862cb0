"""POST /v1/messages: one mail in, its delivery out, workers woken after the commit."""

import asyncio
import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import orjson
import pytest

from postledger.database import Connection
from postledger.http.waking import EVERY, WAKER
from postledger.projections.verify import verify
from tests.eventually import eventually

from .conftest import Api

LETTER = {"subject": "Welcome {{ name|default('you') }}", "html": "<p>Hello from {{ town|default('here') }}</p>"}


async def standing(api: Api, name: str = "welcome", *, started: bool = True) -> str:
    sender = await api.post("/v1/senders", {"name": f"way of {name}", "url": "null://"})
    assert sender.status == 201, sender.content
    made = await api.post(
        "/v1/campaigns",
        {"name": name, "kind": "standing", "from": "hello@shop.example", "sender": f"way of {name}", **LETTER},
    )
    assert made.status == 201, made.content
    if started:
        begun = await api.post(f"/v1/campaigns/{made.json['id']}/start", {})
        assert begun.status == 200, begun.content
    return str(made.json["id"])


async def test_a_message_is_a_delivery_with_a_history(api: Api, db: Connection) -> None:
    campaign = await standing(api)
    asked = {
        "campaign": "welcome",
        "email": " Ann@Bücher.example ",
        "key": "user:1",
        "name": "Ann",
        "data": {"town": "Ulm"},
    }
    taken = await api.post("/v1/messages", asked)
    assert (taken.status, taken.json["new"]) == (202, True)
    delivery = int(taken.json["delivery_id"])
    row = await db.fetchrow(
        "SELECT email, recipient_key, name, data FROM recipients WHERE campaign_id = $1 AND delivery_id = $2",
        int(campaign),
        delivery,
    )
    assert tuple(row) == ("ann@xn--bcher-kva.example", "user:1", "Ann", {"town": "Ulm"})
    assert (await verify(db, None)).equal

    async def sealed() -> None:
        assert not await db.fetchval("SELECT unsealed()")

    await eventually(sealed, within=10)


async def test_a_key_is_written_once_whoever_asks_again(api: Api, db: Connection) -> None:
    campaign = await standing(api)
    asked = {"campaign": "welcome", "email": "ann@x.example", "key": "order-1"}
    answers = await asyncio.gather(*(api.post("/v1/messages", asked) for _ in range(12)))
    assert {one.status for one in answers} == {202}
    assert len({one.json["delivery_id"] for one in answers}) == 1
    assert [one.json["new"] for one in answers].count(True) == 1
    again = await api.post("/v1/messages", {**asked, "campaign": campaign})
    assert again.json == {"delivery_id": answers[0].json["delivery_id"], "new": False}
    await db.execute("SELECT roll_campaign($1)", int(campaign))
    assert (await api.post("/v1/messages", asked)).json["new"] is False


async def test_without_a_key_each_is_one_of_its_own(api: Api) -> None:
    await standing(api)
    asked = {"campaign": "welcome", "email": "ann@x.example"}
    ids = {(await api.post("/v1/messages", asked)).json["delivery_id"] for _ in range(3)}
    assert len(ids) == 3


async def test_the_same_request_again_has_one_effect(api: Api, db: Connection) -> None:
    await standing(api)
    asked = {"campaign": "welcome", "email": "ann@x.example"}
    headers = {"Idempotency-Key": "signup-1"}
    first = await api.post("/v1/messages", asked, headers=headers)
    again = await api.post("/v1/messages", asked, headers=headers)
    assert (first.status, again.status, again.json) == (202, 202, first.json)
    other = await api.post("/v1/messages", {**asked, "email": "bob@x.example"}, headers=headers)
    assert other.problem == (422, "key-reused")
    assert await db.fetchval("SELECT count(*) FROM recipients") == 1


REFUSED: list[tuple[dict[str, Any], tuple[int, str], str | None]] = [
    ({"campaign": "nothing"}, (404, "not-found"), None),
    ({"email": "nobody"}, (422, "invalid"), "email"),
    ({"email": "jürgen@x.example"}, (422, "invalid"), "email"),
    ({"key": ""}, (422, "invalid"), "key"),
    ({"key": "k" * 201}, (422, "invalid"), "key"),
    ({"name": "a\r\nBcc: b@x.example"}, (422, "invalid"), "name"),
    ({"data": [1]}, (422, "invalid"), "data"),
    ({"due_at": "tomorrow"}, (422, "invalid"), "due_at"),
    ({"due_at": "2200-01-01T00:00:00Z"}, (422, "invalid"), "due_at"),
    ({"to": "x@x.example"}, (422, "invalid"), "to"),
]


async def test_what_cannot_be_is_refused_by_field(api: Api, db: Connection) -> None:
    await standing(api)
    for change, problem, field in REFUSED:
        refused = await api.post("/v1/messages", {"campaign": "welcome", "email": "ann@x.example", **change})
        assert (refused.problem, refused.json.get("field")) == (problem, field), change
        assert "x@x.example" not in refused.json["detail"]
    assert await db.fetchval("SELECT count(*) FROM recipients") == 0


async def test_data_has_a_limit(api: Api) -> None:
    await standing(api)
    body = orjson.dumps({"campaign": "welcome", "email": "ann@x.example", "data": {"a": "x" * 1_100_000}})
    headers = {"Content-Type": "application/json"}
    refused = await api.call("POST", "/v1/messages", data=io.BytesIO(body), headers=headers)
    assert (refused.problem, refused.json["field"]) == ((422, "invalid"), "data")


async def test_what_stands_in_the_way_of_one_harms_no_other(api: Api, db: Connection, conn: asyncpg.Connection) -> None:
    """An application is just writing the key of one; another is not acceptable; a third is for no campaign."""
    await standing(api)
    await conn.execute("BEGIN")
    await conn.execute("SELECT postledger.enqueue('welcome', 'held@x.example', 'held')")
    late = datetime.now(UTC) + timedelta(days=4000)
    odd = [{"key": "held"}, {"due_at": late.isoformat()}, {"campaign": "nothing"}]
    plain = {"campaign": "welcome", "email": "ann@x.example"}
    held, refused, lost = (asyncio.ensure_future(api.post("/v1/messages", {**plain, **one})) for one in odd)
    others = await asyncio.gather(*(api.post("/v1/messages", {**plain, "key": f"k{n}"}) for n in range(40)))
    assert {(one.status, one.json["new"]) for one in others} == {(202, True)}
    assert ((await refused).problem, (await refused).json["field"]) == ((422, "invalid"), "due_at")
    assert (await lost).problem == (404, "not-found")
    await conn.execute("ROLLBACK")
    assert (await held).status in (202, 503)  # it waits for the key, but not for ever
    assert (await api.post("/v1/messages", {**plain, "key": "held"})).status == 202
    assert await db.fetchval("SELECT count(*) FROM recipients") == 41
    assert (await verify(db, None)).equal


async def test_one_idempotency_key_at_once_has_one_effect(api: Api, db: Connection) -> None:
    await standing(api)
    asked = {"campaign": "welcome", "email": "ann@x.example"}
    answers = await asyncio.gather(
        *(api.post("/v1/messages", asked, headers={"Idempotency-Key": f"k{n % 3}"}) for n in range(30))
    )
    assert {one.status for one in answers} == {202}
    assert len({one.json["delivery_id"] for one in answers}) == 3
    assert [one.headers.get("Idempotent-Replayed") for one in answers].count(None) == 3
    assert await db.fetchval("SELECT count(*) FROM recipients") == 3
    assert await db.fetchval("SELECT count(*) FROM idempotency_keys") == 3


async def test_bulk_and_cancelled_ones_take_none(api: Api) -> None:
    campaign = await standing(api)
    assert (await api.post(f"/v1/campaigns/{campaign}/cancel", {})).status == 200
    refused = await api.post("/v1/messages", {"campaign": "welcome", "email": "ann@x.example"})
    assert refused.problem == (409, "conflict")


class Heard(list[float]):
    """When each wake-up came, by the loop's clock."""

    def __init__(self, conn: asyncpg.Connection) -> None:
        super().__init__()
        self.conn = conn

    async def listen(self) -> None:
        channel = await self.conn.fetchval("SELECT postledger.wake_channel()")
        await self.conn.add_listener(channel, lambda *_: self.append(asyncio.get_running_loop().time()))

    async def forget(self) -> None:
        """What was committed before this is heard no more: a server hands it over before it is ready again."""
        await self.conn.fetchval("SELECT 1")
        self.clear()


@pytest.fixture
async def heard(database: str) -> AsyncIterator[Heard]:
    conn = await asyncpg.connect(database)
    heard = Heard(conn)
    await heard.listen()
    yield heard
    await conn.close()


async def test_workers_are_woken_after_the_commit_and_not_for_each(api: Api, heard: Heard, db: Connection) -> None:
    await standing(api)
    await heard.forget()
    sent = api.app[WAKER].sent
    begun = asyncio.get_running_loop().time()
    answers = await asyncio.gather(
        *(api.post("/v1/messages", {"campaign": "welcome", "email": f"p{n}@x.example"}) for n in range(60))
    )
    assert {one.status for one in answers} == {202}

    async def all_said() -> None:
        assert api.app[WAKER].sent > sent
        assert len(heard) == api.app[WAKER].sent - sent

    await eventually(all_said, within=10)
    took = asyncio.get_running_loop().time() - begun
    assert 1 <= len(heard) <= took / EVERY + 2


async def test_a_wake_up_is_said_again_where_the_connection_is_lost(
    api: Api, heard: Heard, conn: asyncpg.Connection
) -> None:
    await standing(api)
    asked = {"campaign": "welcome", "email": "ann@x.example"}
    assert (await api.post("/v1/messages", asked)).status == 202
    await eventually(lambda: _true(api.app[WAKER].sent), within=10)
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postledger http wakes'"
    assert await conn.fetchval(query)
    await heard.forget()
    assert (await api.post("/v1/messages", asked)).status == 202
    await eventually(lambda: _true(heard), within=10)


def _true(value: object) -> None:
    assert value
