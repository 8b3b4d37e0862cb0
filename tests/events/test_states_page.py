"""docs/states.md says what the tables and classes say."""

import re
from pathlib import Path

import pytest
from attrs import NOTHING, fields

from postledger.events.machines import CAMPAIGN, DELIVERY
from postledger.events.types import EVENTS, StreamKind

PAGE = (Path(__file__).parents[2] / "docs" / "states.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(("table", "section"), [(DELIVERY, "Delivery"), (CAMPAIGN, "Campaign")])
def test_the_diagram_has_the_transitions_and_no_other(table, section):
    drawn = re.findall(r"^ +(\S+) --> (\w+): (\w+)$", SECTIONS[section], re.MULTILINE)
    written = [(row.from_status or "[*]", row.to_status, row.event) for row in table]
    assert sorted(drawn) == sorted(written)


@pytest.mark.parametrize("stream", StreamKind)
def test_the_tables_have_every_event_and_field(stream):
    rows = re.findall(r"^\| ([A-Z]\w+) \|([^|]*)\|", SECTIONS[stream.title()], re.MULTILINE)
    shown = [(event, sorted(filter(None, names.strip().split(", ")))) for event, names in rows]
    written = [(cls.type, sorted(map(_shown, fields(cls)))) for cls in EVENTS if cls.stream is stream]
    assert sorted(shown) == sorted(written)


def _shown(attribute) -> str:
    return attribute.name.removesuffix("_") + ("" if attribute.default is NOTHING else "?")
