"""Header lines: limits, encodings, injection."""

import email
import email.policy
import re
from email.header import decode_header, make_header
from email.utils import parseaddr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.errors import DataError
from postledger.messages.addresses import Address, Mailbox
from postledger.messages.headers import HeaderError, mailbox, unstructured, verbatim
from tests.messages.reading import decode_words, raw_headers

ADDRESS = Address("ann@xn--bcher-kva.example")
CONTROLS = [chr(code) for code in (*range(32), *range(127, 160), 0x2028, 0x2029)]
# Letters of one to four bytes, right-to-left, combining, joined emoji, and what headers give meaning to.
ALPHABET = st.sampled_from(
    [*"abc XYZ,;:<>()@\"'\\=?_.!#äßéЖ中ع", "\u0301", "👩\u200d👩\u200d👧", "🎉", "=?utf-8?q?x?="]
)
TEXTS = st.one_of(
    st.lists(ALPHABET, max_size=120).map("".join),
    st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=300),
    st.text(st.sampled_from("abc d"), max_size=900),
)


def stdlib_subject(line: str) -> str:
    return email.message_from_string(line, policy=email.policy.default)["subject"]


def legacy_subject(line: str) -> str:
    value = email.message_from_string(line, policy=email.policy.compat32)["subject"]
    return str(make_header(decode_header(re.sub(r"\r?\n", "", value))))


def check_lines(text: str) -> None:
    assert text.isascii()
    assert text.endswith("\r\n")
    for line in text[:-2].split("\r\n"):
        assert len(line) <= 76
        assert "\r" not in line
        assert "\n" not in line
        assert line.strip()


@settings(deadline=None, max_examples=300)
@given(TEXTS.map(str.strip).filter(bool))
def test_subjects_survive_three_readers(text: str) -> None:
    text = text[:998].strip()
    line = unstructured("Subject", text)
    check_lines(line)
    ((name, value),) = raw_headers(line.encode())
    assert (name, decode_words(value)) == ("Subject", text)
    assert legacy_subject(line) == text
    # The new parser of the standard library joins words with a space where the text after them is no word.
    if "=?" not in text:
        assert stdlib_subject(line) == text


@pytest.mark.parametrize(
    "text",
    [
        "🎉" * 300,
        "Grüße aus Köln – " * 40,
        "w" * 998,
        "word " * 199,
        "مرحبا بكم في متجرنا",
        "e\u0301" * 150,
        "=?utf-8?q?already?=",
        "two  spaces",
        "日本語" * 100,
    ],
)
def test_long_and_foreign_subjects(text: str) -> None:
    text = text.strip()
    line = unstructured("Subject", text)
    check_lines(line)
    assert decode_words(raw_headers(line.encode())[0][1]) == text


def test_short_ascii_stays_readable_and_is_folded_between_words() -> None:
    assert unstructured("Subject", "Hello, you") == "Subject: Hello, you\r\n"
    folded = unstructured("Subject", " ".join(["readable"] * 20))
    assert "=?" not in folded
    assert folded.count("\r\n ") == 2


@settings(deadline=None, max_examples=300)
@given(TEXTS.map(lambda text: text.strip()[:998]))
def test_names_survive_and_addresses_stay_bare(name: str) -> None:
    line = mailbox("From", Mailbox(name, ADDRESS))
    check_lines(line)
    parsed = email.message_from_string(line, policy=email.policy.default)["from"]
    assert [address.addr_spec for address in parsed.addresses] == [ADDRESS]
    ((_, value),) = raw_headers(line.encode())
    phrase = value.removesuffix(ADDRESS if not name else f" <{ADDRESS}>")
    assert read_phrase(phrase) == name
    legacy_name, legacy_address = parseaddr(value)
    assert legacy_address == ADDRESS
    assert (legacy_name if phrase.startswith('"') else str(make_header(decode_header(legacy_name)))) == name


def read_phrase(phrase: str) -> str:
    if phrase.startswith('"'):
        assert re.fullmatch(r'"(?:[^"\\]|\\.)*"', phrase)
        assert "=?" not in phrase
        return re.sub(r"\\(.)", r"\1", phrase[1:-1])
    assert re.fullmatch(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]*", phrase)
    return decode_words(phrase)


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("Ann Lee", "Ann Lee"),
        ("O'Neil & Co", "O'Neil & Co"),
        ("Lee, Ann", '"Lee, Ann"'),
        ('Ann "A" Lee', r'"Ann \"A\" Lee"'),
        ("back\\slash", r'"back\\slash"'),
        ("Dr. Lee (shop)", '"Dr. Lee (shop)"'),
        ("ann@home", '"ann@home"'),
        ("Weiß", "=?utf-8?b?V2Vpw58=?="),
    ],
)
def test_names_are_quoted_where_they_must_be(name: str, phrase: str) -> None:
    assert mailbox("To", Mailbox(name, ADDRESS)) == f"To: {phrase} <{ADDRESS}>\r\n"


def test_no_name() -> None:
    assert mailbox("To", Mailbox(None, ADDRESS)) == f"To: {ADDRESS}\r\n"


@pytest.mark.parametrize("control", [*CONTROLS, chr(0xD800), chr(0xDFFF)])
def test_no_value_can_break_out(control: str) -> None:
    for place in ("{}x", "x{}", "x{}Bcc: eve@example.com"):
        value = place.format(control)
        for write in (
            lambda value: unstructured("Subject", value),
            lambda value: verbatim("List-Id", value),
            lambda value: mailbox("To", Mailbox(value, ADDRESS)),
            lambda value: mailbox("To", Mailbox(None, Address(value))),
        ):
            with pytest.raises(HeaderError) as raised:
                write(value)
            assert raised.value.field in str(raised.value)
            assert "eve" not in str(raised.value)
            assert isinstance(raised.value, DataError)


def test_verbatim_is_one_line_or_an_error() -> None:
    link = f"<https://example.com/u/{'x' * 700}>"
    assert verbatim("List-Unsubscribe", link) == f"List-Unsubscribe: {link}\r\n"
    with pytest.raises(HeaderError, match="998"):
        verbatim("List-Unsubscribe", f"<https://example.com/{'x' * 1000}>")
    with pytest.raises(HeaderError, match="ASCII"):
        verbatim("List-Id", "Köln <news.example.com>")


def test_limits() -> None:
    with pytest.raises(HeaderError, match="10000000 characters"):
        unstructured("Subject", "x" * 10_000_000)
    with pytest.raises(HeaderError, match="name of 999 characters"):
        mailbox("To", Mailbox("x" * 999, ADDRESS))
    with pytest.raises(HeaderError, match="normal form"):
        mailbox("To", Mailbox(None, Address("ann@bücher.example")))
