"""What the csv module writes is read back equal; whatever bytes come, the answer is rows or a DataError."""

import csv
import io
from collections.abc import Sequence

import orjson
from attrs import frozen
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from postledger.errors import DataError
from postledger.ledger.audience.csv_reader import read_csv
from postledger.ledger.audience.header import RESERVED, ROLES
from postledger.ledger.audience.rows import DATA_LIMIT, KEY_LIMIT, BadRow, Row

PLAIN = [chr(code) for code in range(0x20, 0x7F)] + ["\n", "\r", "\t"]
WESTERN = PLAIN + [chr(code) for code in range(0xC0, 0x100)]
# Without a mark UTF-16 is recognised by the NULs of plain text, Windows-1252 by bytes that UTF-8 cannot have.
ALPHABETS = {
    "utf-8": st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    "utf-8-sig": st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    "utf-16": st.characters(exclude_characters="\0", exclude_categories=["Cs"]),
    "utf-16-le": st.sampled_from(WESTERN),
    "utf-16-be": st.sampled_from(WESTERN),
    "cp1252": st.sampled_from(WESTERN),
}
TITLES = st.text(st.sampled_from("abcXYZ äß019_-.,;|"), min_size=1, max_size=12).map(str.strip)


@frozen
class Table:
    encoding: str
    delimiter: str
    end: str
    quoting: int
    titles: list[str]
    people: list[list[str]]

    @property
    def content(self) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=self.delimiter, lineterminator=self.end, quoting=self.quoting)
        writer.writerows([self.titles, *self.people])
        return out.getvalue().encode(self.encoding)


@st.composite
def tables(draw: st.DrawFn, encodings: Sequence[str] = tuple(ALPHABETS)) -> Table:
    encoding = draw(st.sampled_from(encodings))
    titles = draw(st.lists(TITLES, max_size=4, unique=True))
    # A tab between titles that hold other delimiters may be blank space around those.
    tab = [] if {",", ";"} & set("".join(titles)) else ["\t"]
    delimiter = draw(st.sampled_from([",", ";", *tab]))
    assume(not any(title.lower() in ROLES or title in RESERVED or not title for title in titles))
    titles.insert(draw(st.integers(0, len(titles))), draw(st.sampled_from(["email", "Email", "EMAIL"])))
    at = next(index for index, title in enumerate(titles) if title.lower() == "email")
    cells = st.lists(st.text(ALPHABETS[encoding], max_size=8), min_size=len(titles) - 1, max_size=len(titles) - 1)
    people = draw(st.lists(cells, max_size=6))
    for number, person in enumerate(people):
        person.insert(at, f"user{number}@example.com")
    # csv.writer leaves a line end that is not its own without quotes.
    foreign = any(end in cell for person in people for cell in person for end in "\r\n")
    quoting = csv.QUOTE_ALL if foreign else draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
    return Table(encoding, delimiter, draw(st.sampled_from(["\n", "\r\n", "\r"])), quoting, titles, people)


def data_of(table: Table, person: list[str]) -> dict[str, str]:
    return {t: cell for t, cell in zip(table.titles, person, strict=True) if t.lower() != "email"}


@given(tables())
@settings(deadline=None, max_examples=150)
def test_what_the_csv_module_writes_is_read_back_equal(table: Table) -> None:
    content = table.content
    assume(table.encoding != "cp1252" or content.isascii() or not is_utf8(content))
    rows = list(read_csv(io.BytesIO(content)))
    assert all(isinstance(row, Row) for row in rows), rows
    assert [orjson.loads(row.data) for row in rows if isinstance(row, Row)] == [
        data_of(table, person) for person in table.people
    ]
    assert [row.email for row in rows if isinstance(row, Row)] == [
        f"user{n}@example.com" for n in range(len(table.people))
    ]


@given(tables(), st.text(st.sampled_from('ab@.,;\t" \0\ud800'), max_size=20), st.integers(0, 6))
@settings(deadline=None, max_examples=150)
def test_one_bad_line_harms_no_other(table: Table, line: str, position: int) -> None:
    """Fields are of one line and hold no quotes: with such, what a stray quote means is anybody's guess."""
    clean = str.maketrans("", "", '"\r\n')
    people = [[cell.translate(clean) for cell in person] for person in table.people]
    before, after = people[:position], people[position:]
    top = Table("utf-8", table.delimiter, "\n", table.quoting, table.titles, before).content
    bottom = Table("utf-8", table.delimiter, "\n", table.quoting, table.titles, after).content
    bottom = bottom[bottom.index(b"\n") + 1 :] if after else b""
    stray = line.encode("utf-8", "surrogatepass") + b"\n"
    rows = list(read_csv(io.BytesIO(top + stray + bottom)))
    here = len(before) + 2
    assert [(row.line, orjson.loads(row.data)) for row in rows if isinstance(row, Row) and row.line != here] == [
        (number + 2 + (number >= len(before)), data_of(table, person)) for number, person in enumerate(people)
    ]


HEADERS = st.sampled_from(
    [
        b"",
        b"email,name,key,x\n",
        b"email;name\r",
        b"\xff\xfee\0m\0a\0i\0l\0\n\0",
        b'\xef\xbb\xbf"email"\t"x"\r\n',
    ]
)
HOSTILE = st.one_of(
    st.binary(max_size=200),
    st.lists(
        st.sampled_from(
            [
                b'"',
                b",",
                b";",
                b"\t",
                b"\n",
                b"\r",
                b"\0",
                b" ",
                b"a@b.de",
                b"x",
                b"\xed\xa0\x80",
                b"\xe9",
                b"\xff",
            ]
        ),
        max_size=60,
    ).map(b"".join),
)


@given(HEADERS, HOSTILE)
@settings(deadline=None, max_examples=300)
def test_no_bytes_raise_anything_but_a_data_error(header: bytes, content: bytes) -> None:
    stream = io.BytesIO(header + content)
    try:
        rows = list(read_csv(stream))
    except DataError:
        return
    ends = sum((header + content).count(end) for end in (b"\r", b"\n"))
    lines = [row.line for row in rows]
    assert lines == sorted(set(lines))
    assert all(1 < line <= ends + 1 for line in lines)
    for row in rows:
        assert_storable(row)


def assert_storable(row: Row | BadRow) -> None:
    if isinstance(row, BadRow):
        assert row.outcome == "invalid"
        assert row.reason
        assert "\0" not in row.reason
        row.reason.encode()
        return
    assert "@" in row.email
    assert row.email.isascii()
    assert 0 < len(row.key) <= max(KEY_LIMIT, len(row.email))
    assert row.name is None or row.name == row.name.strip() != ""
    assert len(row.data) <= DATA_LIMIT
    for text in (row.key, row.name or "", *orjson.loads(row.data).values()):
        assert "\0" not in text
        text.encode()


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
