"""The database's table of transitions is the one of machines.py."""

from collections import Counter

from postledger.events.machines import CAMPAIGN, DELIVERY


async def test_the_database_has_the_same_transitions(conn):
    stored = await conn.fetch("SELECT machine, event, from_status, to_status FROM postledger.transitions")
    written = Counter(
        (row.machine.value, row.event, row.from_status or "", row.to_status.value) for row in (*DELIVERY, *CAMPAIGN)
    )
    assert Counter(tuple(row) for row in stored) == written
