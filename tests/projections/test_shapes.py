"""PostgreSQL takes no body for readable that the codec refuses, and every body that the codec writes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.events.codec import UndecodableEvent, body_of, decode
from postledger.events.types import EVENTS, Deferred, StreamKind
from postledger.projections.shapes import shapes
from tests.events.strategies import events

READABLE = """
    SELECT coalesce(jsonb_path_match(b.body, s.path::jsonpath, silent => true) AND b.body - s.keys = '{}'
                    AND coalesce(b.body ->> 'attempt', '0') !~ '\\D', false)
    FROM (SELECT $2::text::jsonb AS body) b
    LEFT JOIN jsonb_to_recordset($1) AS s(type text, keys text[], path text) ON s.type = $3
"""  # as in verify.sql
CHECKED = [cls for cls in EVENTS if cls.stream in (StreamKind.DELIVERY, StreamKind.CONTACT)]

# What may be put in the place of a value, as JSON text: nearly right things above all.
ODD = [
    *("null", "true", '""', '"x"', "0", "1", "-1", "1.0", "1.5", "1e400", "9007199254740991", "9007199254740992"),
    *("[]", "[1]", '["x"]', "{}", '["2026-11-30T12:00:00.000000Z"]', '"2026-11-30T12:00:00.000000Z"'),
    *('"2026-02-29T12:00:00.000000Z"', '"2028-02-29T12:00:00.000000Z"', '"2026-13-01T12:00:00.000000Z"'),
    *('"2026-11-30T12:00:00Z"', '"2026-11-30T24:00:00.000000Z"', '"2026-11-30T12:00:60.000000Z"'),
    *('"0000-11-30T12:00:00.000000Z"', '"0001-01-01T00:00:00.000000Z"', '"2026-11-30T12:00:00.000000Z\\n"'),
    *('"2026-11-30 12:00:00.000000Z"', '"2026-11-00T12:00:00.000000Z"', '"2026-11-30T12:00:00.000000+00:00"'),
]  # fmt: skip


@pytest.mark.parametrize("cls", CHECKED, ids=lambda cls: f"{cls.stream}-{cls.type}")
@settings(deadline=None, max_examples=8)
@given(data=st.data())
def test_what_the_codec_writes_is_readable(lab, cls, data):
    body = lab.run(as_stored(lab, body_of(data.draw(events(cls)))))
    assert lab.run(readable(lab, cls, body))


@pytest.mark.parametrize("cls", CHECKED, ids=lambda cls: f"{cls.stream}-{cls.type}")
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_what_is_readable_can_be_decoded(lab, cls, data):
    body = body_of(data.draw(events(cls)))
    key = data.draw(st.sampled_from([*body, "v", "extra"]))
    text = lab.run(altered(lab, body, key, data.draw(st.sampled_from([*ODD, None]))))
    if lab.run(readable(lab, cls, text)):
        decode(cls.stream, cls.type, text.encode())


@pytest.mark.parametrize("key", ["attempt", "class", "due_at"])
@pytest.mark.parametrize("odd", ODD)
def test_a_value_is_readable_just_where_it_can_be_decoded(lab, key, odd):
    body = {"attempt": 1, "class": "retry", "due_at": "2026-11-30T12:00:00.000000Z"}
    text = lab.run(altered(lab, body, key, odd))
    assert lab.run(readable(lab, Deferred, text)) == decodable(Deferred, text)


def decodable(cls, text):
    try:
        decode(cls.stream, cls.type, text.encode())
    except UndecodableEvent:
        return False
    return True


async def as_stored(lab, body):
    return await lab.app.fetchval("SELECT $1::jsonb::text", body)


async def altered(lab, body, key, odd):
    """The body without the key, or with something odd under it."""
    if odd is None:
        return await lab.app.fetchval("SELECT ($1::jsonb - $2::text)::text", body, key)
    put = "SELECT ($1::jsonb || jsonb_build_object($2::text, $3::text::jsonb))::text"
    return await lab.app.fetchval(put, body, key, odd)


async def readable(lab, cls, text):
    return await lab.app.fetchval(READABLE, shapes(cls.stream), text, cls.type)
