"""Nobody changes the log by accident: not the program, not the owner, not by the partition or as a replica."""

import asyncpg
import pytest

from tests.campaigns import started

STATEMENTS = ["UPDATE {} SET type = 'Sent'", "UPDATE {} SET body = body", "DELETE FROM {}", "TRUNCATE {}"]
TABLES = ["events", "events_1"]

statements = pytest.mark.parametrize("statement", STATEMENTS)
tables = pytest.mark.parametrize("table", TABLES)


@pytest.fixture
async def campaign(owner):
    return await started(owner, 2)


@statements
@tables
@pytest.mark.parametrize("role", ["origin", "replica", "local"])
async def test_the_owner_is_refused(owner, campaign, statement, table, role):
    await owner.execute(f"SET session_replication_role = {role}")
    before = await owner.fetchval("SELECT count(*) FROM events")
    with pytest.raises(asyncpg.PostgresError) as error:
        await owner.execute(statement.format(table))
    assert error.value.sqlstate == "PL009"
    assert await owner.fetchval("SELECT count(*) FROM events WHERE type <> 'Sent'") == before


@pytest.mark.parametrize("statement", ["TRUNCATE events CASCADE", "TRUNCATE campaigns, events", "TRUNCATE ONLY events"])
async def test_truncating_it_along_with_others_is_refused(owner, campaign, statement):
    with pytest.raises(asyncpg.PostgresError) as error:
        await owner.execute(statement)
    # ONLY is no way round: PostgreSQL itself does not truncate a partitioned table alone.
    assert error.value.sqlstate in ("PL009", "42809")


@statements
@tables
async def test_the_app_role_may_not_even_try(app, campaign, statement, table):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.execute(statement.format(table))


async def test_a_merge_that_would_change_it_is_refused(owner, campaign):
    with pytest.raises(asyncpg.PostgresError) as error:
        await owner.execute("MERGE INTO events e USING campaigns c ON true WHEN MATCHED THEN DELETE")
    assert error.value.sqlstate == "PL009"


@pytest.mark.parametrize(("column", "value"), [("position", "1"), ("xid", "'1'"), ("epoch", "2")])
async def test_the_app_role_supplies_no_place_in_the_log(app, campaign, column, value):
    insert = "INSERT INTO events ({}campaign_id, delivery_id, type, body) VALUES ({}$1, 0, 'Delivered', '{{}}')"
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.execute(insert.format(f"{column}, ", f"{value}, "), campaign)
    await app.execute(insert.format("", ""), campaign)


async def test_the_app_role_writes_through_the_parent_alone(app, campaign):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.execute(
            "INSERT INTO events_1 (campaign_id, delivery_id, type, body) VALUES (1, 0, 'Delivered', '{}')"
        )


async def test_the_app_role_may_not_put_back_the_count_of_positions(app, campaign):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.execute("SELECT setval('events_position', 1)")


@pytest.mark.parametrize("statement", ["ALTER TABLE events DISABLE TRIGGER ALL", "DROP TABLE events"])
async def test_the_app_role_may_not_lift_the_guard(app, campaign, statement):
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await app.execute(statement)


async def test_a_new_partition_is_guarded_too(owner, campaign):
    await owner.execute(
        "ALTER TABLE events DETACH PARTITION events_1;"
        " CREATE TABLE events_2 PARTITION OF events FOR VALUES FROM (MINVALUE) TO (MAXVALUE); SELECT guard_log()"
    )
    await owner.execute("INSERT INTO events (campaign_id, delivery_id, type, body) VALUES (1, 0, 'Delivered', '{}')")
    await owner.execute("SET session_replication_role = replica")
    for table in ("events", "events_2"):
        for statement in STATEMENTS:
            with pytest.raises(asyncpg.PostgresError) as error:
                await owner.execute(statement.format(table))
            assert error.value.sqlstate == "PL009"
