"""A history in plain words."""

from pathlib import Path

import orjson
import pytest

from postledger.demo.story import tell

GOLDEN = sorted((Path(__file__).parents[1] / "events" / "golden").glob("delivery.*.json"))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_event_of_a_delivery_can_be_told(path: Path) -> None:
    type_ = path.stem.split(".")[1]
    event = {"at": "2026-11-30T12:34:56.789012Z", "type": type_, "body": orjson.loads(path.read_bytes())}
    assert [told[:2] for told in tell([event])] == [("12:34:56.789", type_)]
