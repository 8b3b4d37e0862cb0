"""The tables name real events and states, and say what the design says."""

import pytest

from postledger.events.machines import CAMPAIGN, DELIVERY, CampaignStatus, DeliveryStatus
from postledger.events.types import EVENTS, StreamKind

MACHINES = [
    pytest.param(DELIVERY, DeliveryStatus, StreamKind.DELIVERY, id="delivery"),
    pytest.param(CAMPAIGN, CampaignStatus, StreamKind.CAMPAIGN, id="campaign"),
]


@pytest.mark.parametrize(("table", "statuses", "stream"), MACHINES)
def test_every_versioned_event_and_no_other_is_in_its_table(table, statuses, stream):
    assert {row.event for row in table} == {cls.type for cls in EVENTS if cls.stream is stream and cls.versioned}
    assert {row.machine for row in table} == {stream}


@pytest.mark.parametrize(("table", "statuses", "stream"), MACHINES)
def test_an_event_has_one_target_from_each_state(table, statuses, stream):
    assert len({(row.event, row.from_status) for row in table}) == len(table)


@pytest.mark.parametrize(("table", "statuses", "stream"), MACHINES)
def test_every_status_is_reachable(table, statuses, stream):
    reached = {None}
    for _ in statuses:
        reached |= {row.to_status for row in table if row.from_status in reached}
    assert reached - {None} == set(statuses)


def leaving(table, status) -> set[str]:
    return {row.event for row in table if row.from_status is status and row.to_status is not status}


def test_what_leaves_an_end():
    assert leaving(DELIVERY, DeliveryStatus.SENT) == set()
    assert leaving(DELIVERY, DeliveryStatus.SKIPPED) == set()
    assert leaving(DELIVERY, DeliveryStatus.CANCELLED) == set()
    assert leaving(DELIVERY, DeliveryStatus.FAILED) == {"Sent", "Requeued"}
    assert leaving(DELIVERY, DeliveryStatus.UNKNOWN) == {"Sent", "Failed", "Requeued"}
    assert leaving(CAMPAIGN, CampaignStatus.CANCELLED) == set()
    assert leaving(CAMPAIGN, CampaignStatus.COMPLETED) == {"Reopened"}


def test_the_order_in_which_counts_are_shown():
    assert [*DeliveryStatus] == ["pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown"]
    assert [*CampaignStatus] == ["draft", "scheduled", "sending", "paused", "completed", "cancelled"]
