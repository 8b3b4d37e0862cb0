"""Files as people have them: encodings, delimiters, line ends, headers, and rows that are wrong."""

import codecs
import csv
import io
import os
import threading
from pathlib import Path

import orjson
import pytest

from postledger.errors import DataError
from postledger.ledger.audience.csv_reader import read_csv
from postledger.ledger.audience.lines import LINE_LIMIT
from postledger.ledger.audience.rows import DATA_LIMIT, KEY_LIMIT, BadRow, Row

ENCODINGS = {
    "utf-8": (b"", "utf-8", "UTF-8"),
    "utf-8 with BOM": (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    "utf-16-le with BOM": (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    "utf-16-be with BOM": (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
    "utf-16-le": (b"", "utf-16-le", "UTF-16"),
    "utf-16-be": (b"", "utf-16-be", "UTF-16"),
    "utf-32-le with BOM": (codecs.BOM_UTF32_LE, "utf-32-le", "UTF-32"),
    "cp1252": (b"", "cp1252", "Windows-1252"),
}
LINE_ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}


def read(content: bytes | str) -> list[Row | BadRow]:
    stream = io.BytesIO(content.encode() if isinstance(content, str) else content)
    with read_csv(stream) as rows:
        return list(rows)


def good(content: bytes | str) -> list[Row]:
    rows = read(content)
    assert all(isinstance(row, Row) for row in rows), rows
    return [row for row in rows if isinstance(row, Row)]


def bad(content: bytes | str) -> dict[int, str]:
    return {row.line: row.reason for row in read(content) if isinstance(row, BadRow)}


def addresses(content: bytes | str) -> list[str]:
    return [row.email for row in read(content) if isinstance(row, Row)]


def refusal(content: bytes | str) -> str:
    with pytest.raises(DataError) as refused:
        read(content)
    return str(refused.value)


@pytest.mark.parametrize("end", LINE_ENDS.values(), ids=LINE_ENDS)
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_delimiter_and_line_end(encoding: str, delimiter: str, end: str) -> None:
    bom, codec, told = ENCODINGS[encoding]
    lines = [
        ' EMail ,"Name", key,City',
        "a@example.com,Jörg Müller,k1,Köln",
        "",
        '"b@example.com","Ann ""A"" Lee",,"two\nlines, one field"',
        'c@example.com,,k3,"100 €"',
    ]
    text = end.join(line.replace(",", delimiter).replace("\n", end) for line in lines)
    with read_csv(io.BytesIO(bom + text.encode(codec))) as rows:
        assert rows.encoding == told
        assert rows.dialect.delimiter == delimiter
        assert list(rows) == [
            Row(2, "a@example.com", "k1", "Jörg Müller", orjson.dumps({"City": "Köln"})),
            Row(
                4,
                "b@example.com",
                "b@example.com",
                'Ann "A" Lee',
                orjson.dumps({"City": f"two{end}lines{delimiter} one field"}),
            ),
            Row(6, "c@example.com", "k3", None, orjson.dumps({"City": "100 €"})),
        ]


@pytest.mark.parametrize("newline", ["", "\n", "\r\n\r\n\n"])
def test_the_last_line_counts_with_and_without_its_end(newline: str) -> None:
    assert addresses("email\na@example.com\nb@example.com" + newline) == ["a@example.com", "b@example.com"]


class TestEncoding:
    def test_the_first_byte_that_is_not_utf8_may_come_late(self) -> None:
        plain = "".join(f"user{n}@example.com,Ann\n" for n in range(100_000))
        assert len(plain) > 2 << 20
        rows = good(("email,name\n" + plain).encode() + "last@example.com,Jörg".encode("cp1252"))
        assert len(rows) == 100_001
        assert rows[-1].name == "Jörg"

    def test_two_bytes_of_cp1252_that_look_like_utf8_do_not_decide(self) -> None:
        text = "email,name\na@example.com,„Groß“\nb@example.com,Jörg\nc@example.com,Émile\n"
        assert "ß“".encode("cp1252").decode() != "ß“"
        assert [row.name for row in good(text.encode("cp1252"))] == ["„Groß“", "Jörg", "Émile"]

    def test_a_line_pasted_from_elsewhere_spoils_no_other(self) -> None:
        text = "email,name\na@example.com,Jörg\nb@example.com,Пётр\n"
        rows = good(text.encode() + "c@example.com,Müller\n".encode("cp1252"))
        assert [row.name for row in rows] == ["Jörg", "Пётр", "Müller"]

    def test_a_mark_outweighs_what_speaks_against_it(self) -> None:
        rows = good(codecs.BOM_UTF8 + "email,name\na@example.com,Jörg\n".encode("cp1252"))
        assert [row.name for row in rows] == ["Jörg"]

    def test_what_no_encoding_has_becomes_a_replacement_character(self) -> None:
        assert good(b"email,x\na@example.com,\x81\x8d\xff\n")[0].data == orjson.dumps({"x": "��ÿ"})

    def test_utf16_that_ends_in_the_middle_of_a_character(self) -> None:
        content = codecs.BOM_UTF16_LE + "email,x\na@example.com,b".encode("utf-16-le") + b"\x41"
        assert good(content)[0].data == orjson.dumps({"x": "b�"})

    def test_lone_surrogates_become_replacement_characters(self) -> None:
        text = "email,name,x\na@example.com,A\ud800,\udfff\nb@example.com,Bob,y\n"
        for bom, codec in ((b"", "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le")):
            rows = good(bom + text.encode(codec, "surrogatepass"))
            assert [(row.name, row.data) for row in rows] == [
                ("A�", orjson.dumps({"x": "�"})),
                ("Bob", orjson.dumps({"x": "y"})),
            ]

    def test_a_pipe_is_read_to_its_end_first(self) -> None:
        reading, writing = os.pipe()
        with open(writing, "wb") as end:
            end.write("email,name\na@b.de,Jörg".encode("cp1252"))
        with open(reading, "rb") as pipe, read_csv(pipe) as rows:
            assert [row.name for row in rows if isinstance(row, Row)] == ["Jörg"]
            assert not pipe.closed

    def test_a_path_may_lead_to_a_pipe(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        os.mkfifo(path)
        writer = threading.Thread(target=path.write_bytes, args=["email,name\na@b.de,Jörg".encode("cp1252")])
        writer.start()
        assert [row.name for row in read_csv(path) if isinstance(row, Row)] == ["Jörg"]
        writer.join()

    def test_a_stream_is_read_from_where_it_stands_and_stays_open(self) -> None:
        stream = io.BytesIO(b"PREAMBLE" + codecs.BOM_UTF8 + b"email\na@example.com\n")
        stream.seek(8)
        with read_csv(stream) as rows:
            assert [row.email for row in rows] == ["a@example.com"]
        assert not stream.closed

    @pytest.mark.parametrize("content", [b"PK\x03\x04...", b"\x1f\x8b\x08...", b"\xd0\xcf\x11\xe0...", b"%PDF-1.7"])
    def test_what_is_no_text_is_named(self, content: bytes) -> None:
        assert "save it as CSV" in refusal(content)


class TestHeader:
    @pytest.mark.parametrize(
        "header",
        [
            "email,name,key",
            "EMAIL,Name,KEY",
            ' "email" , "name" , "key" ',
            "\u00a0email\u00a0,name ,\tkey",
            "\ufeffemail,name,key",
            '\ufeff"email","name","key"',
            "\r\n\r\nemail,name,key",
            "sep=,\nemail,name,key",
        ],
    )
    def test_is_found_whatever_stands_around_the_names(self, header: str) -> None:
        (row,) = good(f"{header}\na@example.com,Ann,7\n")
        assert (row.email, row.name, row.key, row.data) == ("a@example.com", "Ann", "7", b"{}")

    def test_the_delimiter_is_the_one_that_shows_a_column_email(self) -> None:
        assert good("a,b,c;email\nx;a@example.com\n")[0].data == orjson.dumps({"a,b,c": "x"})
        assert good('email,"a;b;c"\na@example.com,x\n')[0].data == orjson.dumps({"a;b;c": "x"})

    def test_spaces_behind_the_delimiter_belong_to_it_where_the_header_has_them(self) -> None:
        (row,) = good('email, "last, first", city\na@example.com, "Lee, Ann", Rome\n')
        assert row.data == orjson.dumps({"last, first": "Lee, Ann", "city": "Rome"})
        assert good("email,city\na@example.com, Rome\n")[0].data == orjson.dumps({"city": " Rome"})

    def test_other_columns_keep_their_case_and_lose_spaces_around(self) -> None:
        (row,) = good("email, First Name ,first name\na@example.com,A,B\n")
        assert row.data == orjson.dumps({"First Name": "A", "first name": "B"})

    def test_columns_without_a_name_are_passed_over(self) -> None:
        (row,) = good("email,,city,\na@example.com,x,Rome,\n")
        assert row.data == orjson.dumps({"city": "Rome"})

    def test_a_title_may_have_two_lines(self) -> None:
        (row,) = good('email,"home\ntown"\na@example.com,Rome\n')
        assert (row.line, row.data) == (3, orjson.dumps({"home\ntown": "Rome"}))

    def test_a_header_alone_is_a_file_without_people(self) -> None:
        assert read("email,name\n") == []

    def test_a_missing_email_column_names_what_is_there(self) -> None:
        told = refusal("id;mail;name\n1;a@example.com;Ann\n")
        assert "'id', 'mail', 'name'" in told
        assert "rename" in told
        assert "line 1" in told

    def test_a_missing_header_is_told_without_the_address(self) -> None:
        told = refusal("secret@example.com,Ann\n")
        assert "email,name" in told
        assert "secret" not in told

    def test_a_flood_of_columns_is_not_told_in_full(self) -> None:
        told = refusal(",".join(f"column{n}" for n in range(5000)))
        assert "4990 more" in told
        assert len(told) < 400

    @pytest.mark.parametrize(
        ("header", "name"),
        [
            ("email,City,City", "'City'"),
            ("email,x, x ", "'x'"),
            ("email,EMAIL", "'email'"),
            ("email,Key,key", "'key'"),
        ],
    )
    def test_a_name_that_occurs_twice_is_refused(self, header: str, name: str) -> None:
        assert name in refusal(header + "\n")

    @pytest.mark.parametrize("name", ["campaign", "unsubscribe_url"])
    def test_names_that_letters_use_are_refused(self, name: str) -> None:
        told = refusal(f"email,{name}\n")
        assert name in told
        assert "rename" in told
        assert good(f"email,{name.upper()}\na@example.com,x\n")

    @pytest.mark.parametrize("content", [b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, b"\n\r\n  \n"])
    def test_an_empty_file_is_refused(self, content: bytes) -> None:
        assert "header" in refusal(content)

    def test_a_quote_that_is_not_closed_in_the_header(self) -> None:
        assert "line 1" in refusal('email,"name\na@example.com,Ann\n')

    def test_a_header_without_end(self) -> None:
        assert "header" in refusal("email," + "x" * LINE_LIMIT)
        assert "header" in refusal('email,"' + ("x" * (LINE_LIMIT - 10) + "\n") * 3)

    def test_a_file_that_cannot_be_opened(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "nowhere.csv"):
            with pytest.raises(DataError, match=path.name):
                read_csv(path)


class TestRows:
    def test_too_few_and_too_many_columns_harm_no_neighbour(self) -> None:
        content = "email,name\na@example.com,Ann\nb@example.com\nc@example.com,C,c,c\nd@example.com,Dan\n"
        assert addresses(content) == ["a@example.com", "d@example.com"]
        assert bad(content) == {
            3: "1 column where the header has 2 columns",
            4: "4 columns where the header has 2 columns",
        }

    def test_delimiters_that_a_spreadsheet_leaves_behind(self) -> None:
        content = "email,name\na@example.com,Ann,,\n,,\n , \nb@example.com,Bob, \n"
        assert [row.line for row in good(content)] == [2, 5]

    def test_an_address_that_is_none(self) -> None:
        content = "email,name\nnobody,Ann\n,Bob\nc@exam\0ple.com,Cy\nd@example.com,Dan\n"
        assert list(bad(content)) == [2, 3, 4]
        assert bad(content)[3] == "email: empty"
        assert addresses(content) == ["d@example.com"]

    def test_the_address_is_taken_in_normal_form_and_is_the_key(self) -> None:
        (row,) = good("email,x\n\u00a0 Ann+tag@BÜCHER.example \t,1\n")
        assert row.email == row.key == "ann+tag@xn--bcher-kva.example"

    def test_keys_are_trimmed_and_bounded(self) -> None:
        longest = "x" * KEY_LIMIT
        content = f"email,key\na@b.de, 7 \nb@b.de,  \nc@b.de,{longest}\nd@b.de,{longest}x\ne@b.de,a\0b"
        keys = [row.key for row in read(content) if isinstance(row, Row)]
        assert keys == ["7", "b@b.de", longest, "a�b"]
        assert list(bad(content)) == [5]

    def test_names(self) -> None:
        content = 'email,name\na@b.de, Ann \nb@b.de,"  "\nc@b.de,"C\r\nBcc: x@b.de"\nd@b.de,D\0\n'
        assert [row.name for row in read(content) if isinstance(row, Row)] == ["Ann", None, "D�"]
        assert list(bad(content)) == [4]
        assert "ends on line 5" in bad(content)[4]

    def test_data_may_hold_anything(self) -> None:
        (row,) = good('email,x,y\na@example.com,"a\0\\u0000\n""",\\\n')
        assert orjson.loads(row.data) == {"x": 'a�\\u0000\n"', "y": "\\"}

    def test_data_is_bounded(self) -> None:
        fits = DATA_LIMIT - len('{"x":""}')
        content = f"email,x\na@b.de,{'x' * fits}\nb@b.de,{'é' * (DATA_LIMIT // 2)}\nc@b.de,x\n"
        assert addresses(content) == ["a@b.de", "c@b.de"]
        assert "template data" in bad(content)[3]


class TestQuotes:
    def test_one_that_is_not_closed_harms_no_neighbour(self) -> None:
        content = 'email,name\na@b.de,Ann\nb@b.de,"Bob\nc@b.de,Cy\nd@b.de,"Dan"\ne@b.de,Eve\n'
        assert addresses(content) == ["a@b.de", "c@b.de", "d@b.de", "e@b.de"]
        assert bad(content) == {3: "a quote that is opened on this line is not closed"}

    def test_one_that_is_not_closed_up_to_the_end(self) -> None:
        content = 'email,x\na@b.de,"A\n' + "".join(f"user{n}@b.de,{'B' * 40}\n" for n in range(50_000))
        assert len(content) > 2 * LINE_LIMIT
        assert list(bad(content)) == [2]
        assert len(addresses(content)) == 50_000

    def test_where_every_field_is_quoted(self) -> None:
        content = '"email","name"\n"a@b.de","Ann\n"b@b.de","Bob"\n"c@b.de","Cy\n\n"d@b.de","Dan"'
        assert addresses(content) == ["b@b.de", "d@b.de"]
        assert list(bad(content)) == [2, 4]

    def test_text_behind_a_closing_quote(self) -> None:
        wrong = 'a@b.de,"An"n\nb@b.de,"B \\"B\\" B"\n'
        right = 'c@b.de,5" pipe\nd@b.de,"Dan" \n"e@b.de" ,"Eve"  \n'
        content = "email,name\n" + wrong + right
        assert [(row.line, row.name) for row in read(content) if isinstance(row, Row)] == [
            (4, '5" pipe'),
            (5, "Dan"),
            (6, "Eve"),
        ]
        assert list(bad(content)) == [2, 3]
        assert all("twice" in reason for reason in bad(content).values())

    def test_a_record_of_several_lines_that_does_not_fit_says_where_it_ends(self) -> None:
        assert bad('email,x\n\na@b.de,"1\n2\n3",4\nb@b.de,5\n') == {
            3: "3 columns where the header has 2 columns (the row ends on line 5)"
        }

    def test_a_line_without_end_is_one_bad_row(self) -> None:
        content = f"email,x\na@b.de,{'x' * 3 * LINE_LIMIT}\nb@b.de,1\nc@b.de,{'x' * LINE_LIMIT}"
        assert addresses(content) == ["b@b.de"]
        assert list(bad(content)) == [2, 4]

    def test_a_record_that_reaches_a_line_without_end(self) -> None:
        content = f'email,x\na@b.de,"1\nb@b.de,2\n{"x" * 2 * LINE_LIMIT}\nc@b.de,3\n'
        assert addresses(content) == ["b@b.de", "c@b.de"]
        assert list(bad(content)) == [2, 4]

    def test_a_file_of_nothing_but_open_quotes_is_refused_in_time(self) -> None:
        told = refusal("email,x\n" + 'a","\n' * 500_000)
        assert "quotes" in told
        assert "line" in told


def test_the_process_wide_limit_of_the_csv_module_is_never_lowered() -> None:
    before = csv.field_size_limit(4 * LINE_LIMIT)
    try:
        assert addresses("email\na@b.de\n") == ["a@b.de"]
        assert csv.field_size_limit() == 4 * LINE_LIMIT
    finally:
        csv.field_size_limit(before)


def test_a_path_is_opened_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(b"email\na@b.de\n")
    for source in (path, str(path)):
        assert [row.line for row in read_csv(source)] == [2]
    path.write_bytes(b"mail\n")
    with pytest.raises(DataError, match=r"people\.csv"):
        read_csv(path)
