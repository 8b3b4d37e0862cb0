"""Hypothesis strategies for event values."""

from collections.abc import Mapping
from datetime import UTC, datetime
from types import UnionType
from typing import Any, get_args, get_origin

from attrs import fields
from hypothesis import strategies as st

from postledger.events.codec import EXACT
from postledger.events.types import CampaignKind, Event, UnknownPolicy

# Text that a body can hold; what it cannot (NUL, surrogates) has its own tests.
clean_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20) | (
    # What a careless codec takes for something else.
    st.sampled_from(["2026-11-30T12:00:00.000000Z", "2020-01-01", "-0.0", "1e400", "null", "true", "5", ""])
)
moments = st.datetimes(timezones=st.just(UTC))
whole = st.integers(-EXACT, EXACT)

_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: clean_text,
    int: whole,
    datetime: moments,
    CampaignKind: st.sampled_from(CampaignKind),
    UnknownPolicy: st.sampled_from(UnknownPolicy),
    tuple[str, ...]: st.lists(clean_text, max_size=4).map(tuple),
    Mapping[str, int]: st.dictionaries(clean_text, whole, max_size=4),
}


def events(cls: type[Event]) -> st.SearchStrategy[Any]:
    """Any value of this event class."""
    return st.builds(cls, **{attribute.name: _values(attribute) for attribute in fields(cls)})


def _values(attribute: Any) -> st.SearchStrategy[Any]:
    if attribute.name == "attempt":
        return st.integers(1, EXACT)
    if get_origin(attribute.type) is UnionType:
        inner, nothing = get_args(attribute.type)
        assert nothing is type(None)
        return st.none() | _BY_TYPE[inner]
    return _BY_TYPE[attribute.type]
