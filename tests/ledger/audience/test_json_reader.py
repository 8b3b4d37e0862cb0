"""People from JSON: a line each, or one list; a bad one costs itself alone, and memory stays flat."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.errors import DataError
from postledger.ledger.audience.json_reader import LINE_LIMIT, read_list, read_ndjson
from postledger.ledger.audience.rows import BadRow, Row

GOOD = b'{"email": "ann@x.example"}\n'


def lines(*lines: bytes) -> list[Row | BadRow]:
    return list(read_ndjson(io.BytesIO(b"".join(lines))))


def one(text: str) -> Row | BadRow:
    (row,) = lines(text.encode())
    return row


def test_what_is_neither_address_nor_key_nor_name_is_template_data_as_in_a_csv_file() -> None:
    row = one(
        '{"email": " Ann@X.example", "key": "k1", "name": "Ann", "town": "Ulm", "n": 3, "data": {"pet": ["cat"]}}'
    )
    assert row == Row(1, "ann@x.example", "k1", "Ann", b'{"town":"Ulm","n":3,"pet":["cat"]}')


def test_the_address_is_the_key_where_none_is_given() -> None:
    assert one('{"email": "ann@x.example", "key": null, "name": ""}') == Row(
        1, "ann@x.example", "ann@x.example", None, b"{}"
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("17", "a number, where an object"),
        ('["ann@x.example"]', "a list, where an object"),
        ("{", "no JSON"),
        ("\ufeff{}", "no JSON"),
        ("{}", "email: empty"),
        ('{"email": 5}', "email: a number, where a text"),
        ('{"email": "ann"}', "email: no @ in it"),
        ('{"email": "a@x.example", "key": 7}', "key: a number, where a text"),
        ('{"email": "a@x.example", "key": "' + "k" * 201 + '"}', "a key of 201 characters"),
        ('{"email": "a@x.example", "name": "A\\nB"}', "a line break"),
        ('{"email": "a@x.example", "data": []}', "data: a list, where an object"),
        ('{"email": "a@x.example", "town": "Ulm", "data": {"town": "Bonn"}}', "data: 'town' stands in it and beside"),
        ('{"email": "a@x.example", "campaign": "x"}', "campaign: means something else"),
        ('{"email": "a@x.example", "data": {"unsubscribe_url": "x"}}', "unsubscribe_url: means something else"),
        ('{"email": "a@x.example", "n": 123456789012345678901234567890}', "n: a number of more than 64 bits"),
        ('{"email": "a@x.example", "n": {"m": [1e19]}}', "n: a number of more than 64 bits"),
        ('{"email": "a@x.example", "n": NaN}', "no JSON"),
        ('{"email": "a@x.example", "n": NaN, "t": "\\ud800"}', "no JSON: NaN"),
        ('{"email": "a@x.example", "n": "' + "x" * (1 << 20) + '"}', "bytes of template data"),
        ('{"email": "a@x.example", "n": ' + "[" * 300 + "]" * 300 + "}", "nested too deeply"),
        ('{"email": "a@x.example", "t": "\\ud800", "n": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_a_bad_line_says_why_and_harms_no_neighbour(text: str, reason: str) -> None:
    found = lines(GOOD, text.encode() + b"\n", GOOD)
    assert [row.line for row in found] == [1, 2, 3]
    assert isinstance(found[0], Row)
    assert isinstance(found[1], BadRow)
    assert reason in found[1].reason
    assert isinstance(found[2], Row)


def test_no_reason_repeats_what_a_line_holds() -> None:
    secret = "hidden"
    for text in ('{"email": "hidden"}', '{"email": "a@hidden"', '{"email": "hidden\\n@x.example"}', "hidden"):
        row = one(text)
        assert isinstance(row, BadRow), text
        assert secret not in row.reason


def test_empty_lines_are_counted_and_passed_over() -> None:
    assert [row.line for row in lines(b"\xef\xbb\xbf", GOOD, b"\n", b"  \r\n", GOOD.strip())] == [1, 4]


def test_bytes_that_are_no_text_cost_their_own_line() -> None:
    found = lines(GOOD, b'{"email": "\xff@x.example"}\n', GOOD)
    assert [type(row) for row in found] == [Row, BadRow, Row]


def test_what_postgresql_cannot_keep_becomes_a_mark() -> None:
    row = one('{"email": "a@x.example", "n\\u0000": "a\\u0000b", "m": ["\\ud83d", "\\uD83D\\uDE00"]}')
    assert isinstance(row, Row)
    assert orjson.loads(row.data) == {"n\ufffd": "a\ufffdb", "m": ["\ufffd", "\U0001f600"]}


def test_a_line_without_end_is_one_bad_line() -> None:
    found = lines(GOOD, b'{"email": "' + b"x" * 3 * LINE_LIMIT + b'"}\n', GOOD)
    assert [type(row) for row in found] == [Row, BadRow, Row]
    assert [row.line for row in found] == [1, 2, 3]


@settings(deadline=None, max_examples=100)
@given(st.lists(st.one_of(st.binary(max_size=60), st.just(GOOD.strip())), max_size=20))
def test_whatever_comes_nothing_is_raised_and_good_lines_stay(given_lines: list[bytes]) -> None:
    split = [part for line in given_lines for part in line.split(b"\n")]
    found = lines(b"\n".join(split))
    good = [number for number, line in enumerate(split, 1) if line == GOOD.strip()]
    assert set(good) <= {row.line for row in found if isinstance(row, Row)}


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.one_of(st.text(), st.integers(-(2**63), 2**63 - 1), st.none()))
)
def test_data_comes_out_as_it_went_in(data: dict[str, Any]) -> None:
    row = one(json.dumps({"email": "a@x.example", "data": data}))
    if data.keys() & {"campaign", "unsubscribe_url"}:
        assert isinstance(row, BadRow)
        return
    assert isinstance(row, Row)
    assert orjson.loads(row.data) == json.loads(re.sub(r"\\u0000", r"\\ufffd", json.dumps(data)))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_list_numbers_its_items(wrapped: bool) -> None:
    items = [{"email": "a@x.example"}, 5, {"email": "b@x.example", "town": "Ulm"}]
    found = list(read_list(json.dumps({"items": items} if wrapped else items).encode(), "the body"))
    assert found[0] == Row(1, "a@x.example", "a@x.example", None, b"{}")
    assert found[1] == BadRow(2, "a number, where an object {email, key, name, ...} belongs")
    assert found[2] == Row(3, "b@x.example", "b@x.example", None, b'{"town":"Ulm"}')


@pytest.mark.parametrize(
    "body", [b"", b"{", b"5", b'{"email": "a@x.example"}', b'{"items": {}}', b'{"items": [], "x": 1}']
)
def test_what_is_no_list_is_refused_as_a_whole(body: bytes) -> None:
    with pytest.raises(DataError, match=r"the body is .*send a list"):
        read_list(body, "the body")


MEASURE = """
import re, sys
from itertools import islice
from postledger.ledger.audience.json_reader import read_ndjson

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10

def read(path):
    with open(path, "rb") as stream:
        rows, count, held = read_ndjson(stream), 0, []
        while chunk := list(islice(rows, 15_000)):
            count, held = count + len(chunk), chunk
    return count

small, large = sys.argv[1:]
read(small)
before = peak()
print(peak() - before, read(large), peak() - before)
"""


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    line = '{"email": "user%d@example.com", "name": "J\u00f6rg", "x": "' + "x" * 60 + '"}\n'
    (tmp_path / "small").write_text("".join(line % n for n in range(1000)))
    (tmp_path / "large").write_text("".join(line % n for n in range(300_000)))
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "large")]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    _, count, growth = map(int, output.split())
    assert count == 300_000
    assert growth < 24 << 20
