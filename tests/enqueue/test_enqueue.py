"""enqueue(): one message in an application's own transaction, there if and only if that commits."""

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from postledger.projections.verify import verify
from tests.campaigns import change, claim, draft, enlist
from tests.eventually import eventually

CALL = "SELECT postledger.enqueue($1, $2)"
KEYED = "SELECT postledger.enqueue('welcome', $1, key => $2)"


@pytest.fixture(autouse=True)
async def verified(app):
    yield
    verification = await verify(app, None)
    assert verification.differences == []


async def count(conn):
    return await conn.fetchval("SELECT count(*) FROM recipient_queue")


async def test_what_was_given_is_written_down(app, welcome):
    due = await app.fetchval("SELECT clock() + interval '1 hour'")
    made = await app.fetchval(
        "SELECT enqueue('welcome', ' Ann@X.Example\u00a0', 'order:7', ' Ann ', $1, $2)", {"town": "Köln", "n": 1.5}, due
    )
    row = await app.fetchrow("SELECT * FROM recipients WHERE campaign_id = $1", welcome)
    assert (row["delivery_id"], row["email"], row["recipient_key"], row["name"]) == (
        made,
        "ann@x.example",
        "order:7",
        "Ann",
    )
    assert row["data"] == {"town": "Köln", "n": 1.5}
    assert row["once_hash"] is None
    queued = await app.fetchrow("SELECT status::text, attempt, due_at, version FROM recipient_queue")
    assert tuple(queued) == ("pending", 0, due, 1)
    body = await app.fetchval("SELECT body FROM events WHERE delivery_id = $1", made)
    assert body["source"] == "enqueue"


async def test_it_is_there_if_and_only_if_the_transaction_commits(app, owner, welcome):
    async with owner.transaction():
        await owner.fetchval(CALL, "welcome", "a@x.example")
        assert await count(app) == 0
    assert await count(app) == 1
    transaction = owner.transaction()
    await transaction.start()
    await owner.fetchval(CALL, "welcome", "b@x.example")
    await transaction.rollback()
    assert await count(app) == 1
    with pytest.raises(asyncpg.DivisionByZeroError):
        await owner.execute("SELECT postledger.enqueue('welcome', 'c@x.example'); SELECT 1/0")
    assert await count(app) == 1


async def test_a_savepoint_takes_its_mails_along(app, owner, welcome):
    async with owner.transaction():
        await owner.fetchval(CALL, "welcome", "a@x.example")
        inner = owner.transaction()
        await inner.start()
        await owner.fetchval(KEYED, "b@x.example", "k")
        await inner.rollback()
        assert await owner.fetchval(KEYED, "c@x.example", "k") is not None
    assert await app.fetch("SELECT email FROM recipients ORDER BY 1") == [("a@x.example",), ("c@x.example",)]


async def test_one_address_gets_many_mails(app, welcome):
    made = [await app.fetchval(CALL, "welcome", "a@x.example") for _ in range(3)]
    made.append(await app.fetchval(KEYED, "a@x.example", "receipt:1"))
    made.append(await app.fetchval(KEYED, "a@x.example", "receipt:2"))
    assert len(set(made)) == 5
    assert None not in made


async def test_a_key_is_taken_once(app, welcome):
    assert await app.fetchval(KEYED, "a@x.example", "receipt:1") is not None
    assert await app.fetchval(KEYED, "a@x.example", "receipt:1") is None
    assert await app.fetchval(KEYED, "other@x.example", "receipt:1") is None
    assert await count(app) == 1


async def test_keys_of_two_campaigns_are_their_own(app, welcome):
    await change(app, await draft(app, "receipts", kind="standing"), "Started")
    assert await app.fetchval(KEYED, "a@x.example", "1") is not None
    assert await app.fetchval("SELECT enqueue('receipts', 'a@x.example', '1')") is not None


@pytest.mark.parametrize("ending", ["commit", "rollback"])
async def test_who_writes_a_key_at_the_same_time_waits_for_the_first(app, owner, database, welcome, ending):
    first = owner.transaction()
    await first.start()
    assert await owner.fetchval(KEYED, "a@x.example", "k") is not None
    other = await asyncpg.connect(database, server_settings={"default_transaction_isolation": "read committed"})
    second = asyncio.create_task(other.fetchval(KEYED, "a@x.example", "k"))

    async def waits():
        blocked = await app.fetchval("SELECT cardinality(pg_blocking_pids($1))", other.get_server_pid())
        assert blocked == 1

    await eventually(waits, within=10)
    await (first.commit() if ending == "commit" else first.rollback())
    assert (await second is None) == (ending == "commit")
    assert await count(app) == 1
    await other.close()


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_where_it_may_not_see_the_first_it_is_told_to_try_again(app, owner, database, welcome, isolation):
    """As any statement of a transaction that reads as of its beginning."""
    other = await asyncpg.connect(database)
    async with owner.transaction():
        first = await owner.fetchval(KEYED, "a@x.example", "k")
        second = other.transaction(isolation=isolation)
        await second.start()
        waiting = asyncio.create_task(other.fetchval(KEYED, "a@x.example", "k"))

        async def waits():
            assert await app.fetchval("SELECT cardinality(pg_blocking_pids($1))", other.get_server_pid()) == 1

        await eventually(waits, within=10)
    with pytest.raises(asyncpg.SerializationError):
        await waiting
    await second.rollback()
    async with other.transaction(isolation=isolation):
        assert await other.fetchval(KEYED, "a@x.example", "k") is None
    assert await app.fetchval("SELECT array_agg(delivery_id) FROM recipients") == [first]
    await other.close()


@pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])
async def test_stricter_isolation(app, owner, welcome, isolation):
    async with owner.transaction(isolation=isolation):
        made = await owner.fetchval(CALL, "welcome", "a@x.example")
    assert await app.fetchval("SELECT delivery_id FROM recipients") == made


async def test_later(app, welcome):
    await app.fetchval("SELECT enqueue('welcome', 'a@x.example', due_at => clock() + interval '1 hour')")
    await app.fetchval("SELECT enqueue('welcome', 'b@x.example', due_at => clock() - interval '1 hour')")
    taken = await claim(app, welcome, await enlist(app))
    assert [row.email for row in taken.rows] == ["b@x.example"]
    assert timedelta(minutes=59) < taken.due_in <= timedelta(hours=1)


async def refused(conn, statement, *arguments):
    with pytest.raises(asyncpg.PostgresError) as error:
        await conn.fetchval(statement, *arguments)
    return error.value


async def test_no_such_campaign(app):
    error = await refused(app, CALL, "nothing", "a@x.example")
    assert error.sqlstate == "PL001"
    assert "nothing" in str(error)


@pytest.mark.parametrize("kind", ["bulk", "cancelled"])
async def test_a_campaign_that_takes_no_messages(app, kind):
    campaign = await draft(app, kind="bulk" if kind == "bulk" else "standing")
    if kind == "cancelled":
        await change(app, campaign, "Cancelled")
    assert (await refused(app, CALL, "spring", "a@x.example")).sqlstate == "PL002"


ADDRESSES = {
    None: "empty",
    "": "empty",
    "ann.example": "no @",
    "a@b@x.example": "more than one @",
    "ann@bücher.example": "not ASCII: give it as A-label",
    "änn@x.example": "SMTPUTF8",
    "ann@localhost": "no dot",
    "ann@x..example": "not of the form",
    "ann@x.example\n": "not of the form",
    "a" * 65 + "@x.example": "not of the form",
    "a@" + "b" * 64 + ".example": "not of the form",
    "a@" + "b" * 60 + ("." + "c" * 60) * 4: "longer than 254",
    "a@1.2.3.4": "not of the form",
    "a@xx--y.example": "not of the form",
}


async def test_addresses_that_are_not_acceptable(app, welcome):
    for address, reason in ADDRESSES.items():
        error = await refused(app, CALL, "welcome", address)
        assert (error.sqlstate, error.column_name) == ("PL003", "email")
        assert "email: " in str(error)
        assert reason in str(error)
        assert not address or address not in str(error)
    assert await count(app) == 0


OTHERS = {
    "key => ''": "key",
    "key => repeat('k', 201)": "key",
    "name => E'Ann\\nBcc: all@x.example'": "name",
    "name => E'Ann\\u2028Bcc'": "name",
    "name => repeat('n', 999)": "name",
    "data => '[1]'": "data",
    "data => '7'": "data",
    "data => 'null'": "data",
    "data => jsonb_build_object('a', repeat('x', 1048576))": "data",
    "due_at => 'infinity'": "due_at",
}


async def test_what_else_is_not_acceptable(app, welcome):
    for given, field in OTHERS.items():
        error = await refused(app, f"SELECT enqueue('welcome', 'a@x.example', {given})")
        assert (error.sqlstate, error.column_name) == ("PL003", field)
    assert await count(app) == 0


async def test_a_draft_and_a_paused_one_take_messages_that_wait(app):
    campaign = await draft(app, "welcome", kind="standing")
    await app.fetchval(CALL, "welcome", "a@x.example")
    assert (await claim(app, campaign, await enlist(app))).rows == ()
    await change(app, campaign, "Started")
    await change(app, campaign, "Paused")
    await app.fetchval(CALL, "welcome", "b@x.example")
    await change(app, campaign, "Resumed")
    assert len((await claim(app, campaign, await enlist(app))).rows) == 2


async def test_by_id(app, welcome):
    assert await app.fetchval(CALL, str(welcome), "a@x.example") is not None
    assert (await refused(app, CALL, "99999999999999999999", "a@x.example")).sqlstate == "PL001"


async def test_neither_pausing_nor_cancelling_waits_for_an_application(app, owner, welcome):
    async with owner.transaction():
        await owner.fetchval(CALL, "welcome", "a@x.example")
        async with asyncio.timeout(10):
            await change(app, welcome, "Paused")
            await change(app, welcome, "Resumed")


async def test_a_cancelled_campaign_is_swept_when_the_last_application_has_ended(app, owner, welcome):
    """Its messages were on their way before: no snapshot shows them until then."""
    async with owner.transaction():
        await owner.fetchval(CALL, "welcome", "a@x.example")
        await change(app, welcome, "Cancelled")
        assert not await app.fetchval("SELECT finish_campaign($1)", welcome)
    assert not await app.fetchval("SELECT finish_campaign($1)", welcome)
    assert (await claim(app, welcome, await enlist(app))).cancelled == 1
    assert await app.fetchval("SELECT finish_campaign($1)", welcome)
