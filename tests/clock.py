"""The database's clock in the hands of a test."""

from datetime import UTC, datetime

from postledger.database import Connection

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


async def stop_clock(owner: Connection, at: datetime = NOON) -> None:
    """From now on `clock()` says `at`, until `set_clock` says otherwise: replaced, it is still the same function."""
    await owner.execute("CREATE TABLE test_clock AS SELECT $1::timestamptz AS at", at)
    await owner.execute("GRANT SELECT ON test_clock TO PUBLIC")
    await owner.execute(
        "CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE PARALLEL SAFE"
        " SET search_path FROM CURRENT AS $$ SELECT at FROM test_clock $$"
    )


async def set_clock(owner: Connection, at: datetime) -> None:
    await owner.execute("UPDATE test_clock SET at = $1", at)
