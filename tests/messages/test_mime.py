"""The mail as it leaves: read back by two readers."""

import email
import email.policy
import hashlib
import re
from datetime import datetime, timedelta, timezone
from email.message import EmailMessage
from typing import Any

import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st

from postledger.errors import DataError
from postledger.messages.addresses import Address, Mailbox, parse_mailbox
from postledger.messages.headers import HeaderError
from postledger.messages.mime import Campaign, Composed, Letter, Recipient, RenderError, compose, prepare
from postledger.messages.templates import TemplateError
from postledger.messages.unsubscribe import UnsubscribeLinks, read_token
from tests.messages.reading import check_raw, decode_words, header, parts, raw_headers, split_head

SECRET = b"0123456789abcdef"
LINKS = UnsubscribeLinks("https://mail.example.com", SECRET)
BULK = Campaign("Spring sale", "bulk")
STANDING = Campaign("Welcome", "standing")
NOON = datetime(2026, 11, 30, 13, 0, 5, tzinfo=timezone(timedelta(hours=1)))
LETTER = Letter(
    "Hello {{ name }}",
    parse_mailbox("Größe & Co <news@bücher.example>"),
    '<p>Dear {{ name }}</p><p><a href="{{ unsubscribe_url }}">Leave</a></p>',
)
ANN = Recipient(300, 7, "ann@example.com", "Ann", "k-1", {"city": "Köln", "First name": "Ann"})


def made(letter: Letter = LETTER, recipient: Recipient = ANN, **options: Any) -> Composed:
    chosen = {"campaign": BULK, "date": NOON, "attempt": 1, "unsubscribe": LINKS, **options}
    return compose(letter, recipient, **chosen)


def read(composed: Composed) -> EmailMessage:
    """By the standard library; it may find no defect."""
    message = email.message_from_bytes(composed.content, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    for part in message.walk():
        assert not part.defects
        for value in part.values():
            assert not value.defects, value
    return message


def text_of(composed: Composed, kind: str = "text/html") -> str:
    return dict(parts(composed.content))[kind]


def test_a_whole_mail() -> None:
    composed = made()
    check_raw(composed.content)
    assert composed.sha256 == hashlib.sha256(composed.content).hexdigest()
    token = LINKS.url(7, 300).rpartition("/")[2]
    assert raw_headers(split_head(composed.content)[0]) == [
        ("From", "=?utf-8?b?R3LDtsOfZSAmIENv?= <news@xn--bcher-kva.example>"),
        ("To", "Ann <ann@example.com>"),
        ("Subject", "Hello Ann"),
        ("Date", "Mon, 30 Nov 2026 12:00:05 +0000"),
        ("Message-ID", "<300.7@xn--bcher-kva.example>"),
        ("List-Unsubscribe", f"<https://mail.example.com/u/{token}>"),
        ("List-Unsubscribe-Post", "List-Unsubscribe=One-Click"),
        ("Precedence", "bulk"),
        ("X-Postledger-Delivery", "7.300"),
        ("X-Postledger-Attempt", "1"),
        ("MIME-Version", "1.0"),
        ("Content-Type", 'multipart/alternative; boundary="=_300.7"'),
    ]
    assert list(parts(composed.content)) == [
        ("text/plain", f"Dear Ann\n\nLeave <https://mail.example.com/u/{token}>"),
        ("text/html", f'<p>Dear Ann</p><p><a href="https://mail.example.com/u/{token}">Leave</a></p>'),
    ]


def test_the_standard_library_reads_it() -> None:
    message = read(made())
    assert message["from"].addresses[0].display_name == "Größe & Co"
    assert message["date"].datetime == NOON
    assert message.get_body(("html",)).get_content().startswith("<p>Dear Ann</p>")
    assert message.get_body(("plain",)).get_content().startswith("Dear Ann")
    assert [part.get_content_type() for part in message.iter_parts()] == ["text/plain", "text/html"]


def test_the_same_values_give_the_same_bytes() -> None:
    assert made() == made()
    prepare.cache_clear()
    assert made() == made()


def test_an_attempt_changes_neither_message_id_nor_body() -> None:
    first, second = made(), made(attempt=2, date=NOON + timedelta(hours=1))
    assert first.message_id == second.message_id == "<300.7@xn--bcher-kva.example>"
    assert header(second.content, "X-Postledger-Attempt") == "2"
    assert split_head(first.content)[1] == split_head(second.content)[1]
    assert first.sha256 != second.sha256


def test_a_date_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="time zone"):
        made(date=datetime(2026, 11, 30))


def test_headers_occur_once() -> None:
    names = [name.lower() for name, _ in raw_headers(split_head(made().content)[0])]
    assert len(names) == len(set(names))
    assert {"from", "to", "subject", "date", "message-id", "mime-version"} <= set(names)


def test_bulk_without_a_public_address_promises_nothing() -> None:
    letter = evolve(LETTER, html="<p>Dear {{ name }}</p>")
    names = [name for name, _ in raw_headers(split_head(made(letter, unsubscribe=None).content)[0])]
    assert not [name for name in names if name.startswith("List-")]
    assert "Precedence" in names


def test_standing_mail_is_nothing_to_unsubscribe_from() -> None:
    composed = made(campaign=STANDING)
    names = [name for name, _ in raw_headers(split_head(composed.content)[0])]
    assert not [name for name in names if name.startswith("List-") or name == "Precedence"]
    assert header(composed.content, "Auto-Submitted") == "auto-generated"
    assert "/u/" in text_of(composed)


def test_each_of_200_has_their_own_link_in_head_and_body() -> None:
    seen = set()
    for number in range(1, 201):
        composed = made(recipient=evolve(ANN, delivery_id=number, email=f"u{number}@example.com"))
        link = header(composed.content, "List-Unsubscribe")[1:-1]
        assert read_token(SECRET, link.rpartition("/")[2]) == (7, number)
        assert link in text_of(composed)
        assert link in text_of(composed, "text/plain")
        assert re.findall(r"[\w.]+@example\.com", header(composed.content, "To")) == [f"u{number}@example.com"]
        seen.add(link)
    assert len(seen) == 200


def test_a_long_link_is_still_one_line() -> None:
    links = UnsubscribeLinks(f"https://{'long-' * 40}.example.com", SECRET)
    link = f"<{links.url(7, 300)}>"
    composed = made(unsubscribe=links)
    assert f"List-Unsubscribe: {link}".encode() in composed.content.split(b"\r\n")
    with pytest.raises(HeaderError, match="List-Unsubscribe"):
        made(unsubscribe=UnsubscribeLinks(f"https://example.com/{'x' * 1000}", SECRET))


def test_the_address_of_unsubscribing_is_never_empty() -> None:
    with pytest.raises(RenderError, match="unsubscribe_url"):
        made(unsubscribe=None)


def test_merge_data_cannot_forge_what_is_ours() -> None:
    data = dict.fromkeys(("unsubscribe_url", "campaign", "email", "name", "key", "data"), "forged")
    letter = evolve(
        LETTER, html="{{ unsubscribe_url }} {{ campaign }} {{ email }} {{ name }} {{ key }} {{ data.data }}"
    )
    composed = made(letter, evolve(ANN, data=data))
    expected = f"{LINKS.url(7, 300)} Spring sale ann@example.com Ann k-1 forged"
    assert text_of(composed) == expected


def test_values_a_template_is_given() -> None:
    letter = evolve(
        LETTER,
        html="{{ city }} {{ data['First name'] }} {{ email }} {{ data.email }} {{ key }} {{ campaign }}",
    )
    expected = "Köln Ann ann@example.com ann@example.com k-1 Spring sale"
    assert text_of(made(letter)) == expected


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"name": None}, "subject", "no value for `name`"),
        ({"data": {"city": "a\r\nBcc: eve@example.com"}}, "subject", "line break"),
        ({"data": {"city": "a\tb"}}, "subject", "U+0009"),
        ({"data": {"city": "x" * 999}}, "subject", "1005 characters"),
        ({"data": {"city": " "}, "name": ""}, "subject", "empty"),
        ({"data": {}}, "subject", "no value for `city`"),
        ({"data": {"city": object()}}, "subject", "type object"),
        ({"name": "Ann\r\nBcc: eve@example.com"}, "to", "line break"),
        ({"email": "ann@example.com\r\nBcc: eve@example.com"}, "to", "line break"),
        ({"email": "änn@example.com"}, "to", "normal form"),
    ],
)
def test_one_recipients_fault_is_their_error_alone(change: dict[str, Any], field: str, reason: str) -> None:
    letter = evolve(LETTER, subject="{{ name }} {{ city }}" if "name" in change else "{{ city }} Hallo")
    with pytest.raises(RenderError) as raised:
        made(letter, evolve(ANN, **change))
    assert raised.value.field == field
    assert reason in raised.value.reason
    assert "eve" not in str(raised.value)
    assert isinstance(raised.value, DataError)
    assert made(letter)


def test_html_fails_for_one() -> None:
    letter = evolve(LETTER, html="<p>{{ city }}</p>")
    with pytest.raises(RenderError, match="html: no value for `city`"):
        made(letter, evolve(ANN, data={}))
    with pytest.raises(RenderError, match="text: no value for `city`"):
        made(evolve(letter, html="x", text="{{ city }}"), evolve(ANN, data={}))


def test_the_letters_own_faults() -> None:
    with pytest.raises(TemplateError, match="html: line 2: "):
        made(evolve(LETTER, html="\n{{ name"))
    with pytest.raises(TemplateError, match="text: line 1: "):
        made(evolve(LETTER, text="{% if %}"))
    with pytest.raises(TemplateError, match=r"subject: 10,000,000 characters"):
        made(evolve(LETTER, subject="x" * 10_000_000))


def test_a_text_of_its_own() -> None:
    composed = made(evolve(LETTER, text="Dear {{ name }} <b>\n\n{{ unsubscribe_url }}\n"))
    assert text_of(composed, "text/plain") == f"Dear Ann <b>\n\n{LINKS.url(7, 300)}\n"


def test_html_without_words_stands_alone() -> None:
    composed = made(evolve(LETTER, html='<img src="https://example.com/a.png">'))
    check_raw(composed.content)
    assert list(parts(composed.content)) == [("text/html", '<img src="https://example.com/a.png">\n')]
    assert not read(composed).is_multipart()


def test_optional_headers() -> None:
    letter = evolve(
        LETTER,
        reply_to=parse_mailbox("Help, please <help@example.com>"),
        list_id="Shop news <news.shop.example>",
        feedback_id="7:spring:bulk:shop-example",
        headers=(("X-Campaign", "Frühling"), ("X-Long", "word " * 50 + "end"), ("Keywords", "a, b")),
    )
    composed = made(letter)
    check_raw(composed.content)
    assert header(composed.content, "Reply-To") == '"Help, please" <help@example.com>'
    assert header(composed.content, "List-Id") == "Shop news <news.shop.example>"
    assert header(composed.content, "Feedback-ID") == "7:spring:bulk:shop-example"
    assert decode_words(header(composed.content, "X-Campaign")) == "Frühling"
    assert header(composed.content, "X-Long") == "word " * 50 + "end"
    assert read(composed)["keywords"] == "a, b"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"list_id": "news.shop.example"}, "List-Id"),
        ({"list_id": "Näws <news.shop.example>"}, "List-Id"),
        ({"list_id": "News <news.shop.example>\r\nBcc: eve@example.com"}, "List-Id"),
        ({"feedback_id": "a:b:shop"}, "Feedback-ID"),
        ({"feedback_id": "a:b:c:shop"}, "Feedback-ID"),
        ({"feedback_id": "a:b:c:shop-example\n"}, "Feedback-ID"),
        ({"headers": (("X-A", "1"), ("x-a", "2"))}, "X-A"),
        ({"headers": (("X-A", "1\r\nBcc: eve@example.com"),)}, "X-A"),
        ({"headers": (("X A", "1"),)}, "header name"),
        ({"headers": (("X-A:", "1"),)}, "header name"),
        ({"headers": (("", "1"),)}, "header name"),
        ({"headers": (("X-Ä", "1"),)}, "header name"),
        ({"headers": (("X-A\r\nBcc", "1"),)}, "header name"),
        *(
            ({"headers": ((name, "1"),)}, name)
            for name in (
                *("From", "to", "CC", "Bcc", "Sender", "Reply-To", "Subject", "Date", "Message-ID", "Return-Path"),
                *(
                    "Received",
                    "Received-SPF",
                    "DKIM-Signature",
                    "ARC-Seal",
                    "List-Id",
                    "List-Unsubscribe",
                    "MIME-Version",
                ),
                *("Content-Type", "Content-Transfer-Encoding", "Resent-To", "X-Postledger-Attempt", "Precedence"),
            )
        ),
    ],
)
def test_headers_that_a_letter_may_not_set(change: dict[str, Any], field: str) -> None:
    with pytest.raises(HeaderError) as raised:
        evolve(LETTER, **change)
    assert raised.value.field == field
    assert "eve" not in str(raised.value)


def test_a_sender_with_a_broken_name_is_the_letters_fault() -> None:
    with pytest.raises(HeaderError, match="From: a line break"):
        made(evolve(LETTER, sender=Mailbox("A\nB", Address("a@example.com"))))


BODIES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.lists(
        st.sampled_from(
            [
                *(
                    ".",
                    "..",
                    ".x",
                    "\r",
                    "\n",
                    "\r\n",
                    "\n.\n",
                    "\r.\r",
                    "\n.\r\n",
                    " ",
                    "\t",
                    " \n",
                    "=",
                    "=\n",
                    "=3D",
                ),
                *(
                    "From ",
                    "\nFrom x",
                    "--",
                    "--=_300.7--",
                    "a" * 75,
                    "b" * 76,
                    "c" * 77,
                    "é" * 40,
                    "🎉",
                    "漢字",
                    "\x00",
                ),
                *("\x0b", "\x0c", "\x1c", "\x85", "\u2028", "https://example.com/" + "x" * 200, "؆مرحبا", "e\u0301"),
            ]
        ),
        max_size=30,
    ).map("".join),
)


def normal(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text).replace("\x00", "\ufffd")


@settings(deadline=None, max_examples=300)
@given(BODIES)
def test_bodies_come_back_whole(body: str) -> None:
    letter = evolve(LETTER, html="<p>{{ body|safe }}</p>", text="{{ body }}.")
    composed = made(letter, evolve(ANN, data={"body": body.replace("\x00", "\ufffd")}))
    check_raw(composed.content)
    assert text_of(composed) == f"<p>{normal(body)}</p>"
    assert text_of(composed, "text/plain") == f"{normal(body)}."
    message = read(composed)
    assert normal(message.get_body(("html",)).get_content()) == f"<p>{normal(body)}</p>"


@settings(deadline=None, max_examples=150)
@given(BODIES)
@example("0" * 74 + " \n")
@example("0" * 75 + " \n")
@example("0" * 75 + "\t\n")
def test_the_letters_own_text_comes_back_whole(body: str) -> None:
    source = body.replace("{", "(")
    composed = made(evolve(LETTER, html=f"{source}<i>", text=f"{source}."))
    check_raw(composed.content)
    assert text_of(composed) == f"{normal(source)}<i>"
    assert text_of(composed, "text/plain") == f"{normal(source)}."


@settings(deadline=None, max_examples=150)
@given(st.text(max_size=200), st.text(max_size=100))
def test_subject_and_name_come_back_or_are_refused(word: str, name: str) -> None:
    letter = evolve(LETTER, subject="{{ word }}!", html="x")
    try:
        composed = made(letter, evolve(ANN, name=name, data={"word": word}))
    except RenderError as error:
        bad = "[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
        assert re.search(bad, {"subject": word, "to": name}[error.field])  # noqa: PT017
        return
    check_raw(composed.content)
    assert decode_words(header(composed.content, "Subject")) == f"{word}!".strip(" ")


def test_five_thousand_characters_in_one_line() -> None:
    links = " ".join(f'<a href="https://example.com/a/{n}?f[0]=a:2&amp;q=%20{n}">n{n}</a>' for n in range(90))
    composed = made(evolve(LETTER, html=f"<p>{links}</p>"))
    assert len(links) > 5000
    check_raw(composed.content)
    assert text_of(composed) == f"<p>{links}</p>"
    assert "n89 <https://example.com/a/89?f[0]=a:2&q=%2089>" in text_of(composed, "text/plain")


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Hello", "quoted-printable"),
        ("Viele herzliche Grüße aus dem Norden", "quoted-printable"),
        ("こんにちは", "base64"),
    ],
)
def test_the_shorter_encoding_is_taken(text: str, encoding: str) -> None:
    composed = made(evolve(LETTER, html=f"<p>{text * 20}</p>", text=text * 20))
    first = composed.content.split(b"\r\n--=_300.7\r\n")[1]
    assert f"Content-Transfer-Encoding: {encoding}".encode() in first
    assert text_of(composed, "text/plain").strip("\n") == text * 20


def test_ten_megabytes_of_body() -> None:
    composed = made(evolve(LETTER, html="<p>{{ body }}</p>", text="x"), evolve(ANN, data={"body": "y" * 9_000_000}))
    check_raw(composed.content)
    with pytest.raises(RenderError, match=r"html: renders to more than 10,000,000 bytes"):
        made(evolve(LETTER, html="<p>{{ body }}</p>", text="x"), evolve(ANN, data={"body": "y" * 10_000_000}))
