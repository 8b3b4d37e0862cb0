"""Normal form of addresses, mailboxes, and which texts stand in names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postledger.errors import DataError
from postledger.messages.addresses import (
    Address,
    InvalidAddress,
    InvalidName,
    Mailbox,
    check_name,
    clean_data,
    clean_text,
    normalise,
    parse_mailbox,
)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("ann@example.com", "ann@example.com"),
        (" \u00a0Ann@Example.COM\u00a0 ", "ann@example.com"),
        ("Ann.Lee+News@Example.com", "ann.lee+news@example.com"),
        ("user@bücher.example", "user@xn--bcher-kva.example"),
        ("USER@BÜCHER.EXAMPLE", "user@xn--bcher-kva.example"),
        ("user@xn--bcher-kva.example", "user@xn--bcher-kva.example"),
        ("user@bücher。example", "user@xn--bcher-kva.example"),
        ("user@fa\u00df.de", "user@xn--fa-hia.de"),
        ("user@пример.рф", "user@xn--e1afmkfd.xn--p1ai"),
        ("user@bu\u0308cher.example", "user@xn--bcher-kva.example"),
        ("o'neil!#$%&*/=?^_`{|}~-@example.com", "o'neil!#$%&*/=?^_`{|}~-@example.com"),
        ("a@b.c", "a@b.c"),
        ("ann@mail.test", "ann@mail.test"),
        ("ann@printer.local", "ann@printer.local"),
        ("ann@1-2.3com.example", "ann@1-2.3com.example"),
        (f"{'l' * 64}@example.com", f"{'l' * 64}@example.com"),
        (f"a@{'d' * 63}.example", f"a@{'d' * 63}.example"),
    ],
)
def test_normal_form(text: str, normal: str) -> None:
    address = normalise(text)
    assert address == normal
    assert isinstance(address, Address)
    assert (address.full, address.local, address.domain) == (normal, *normal.split("@"))
    assert normalise(address) == normal


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \u00a0", "empty"),
        ("ann", "no @"),
        ("@example.com", "nothing before"),
        ("ann@", "nothing after"),
        ("ann@@example.com", "more than one @"),
        ("ann@example.com, bob@example.com", "more than one @"),
        ("ann@example.com;", "comma or semicolon"),
        ("Ann <ann@example.com>", "bare address"),
        ("ann lee@example.com", "not allowed"),
        ("ann@exam ple.com", "a space after"),
        ("ann@example", "no dot"),
        ("ann@localhost", "no dot"),
        ("ann@example..com", "no internet name"),
        ("ann@.example.com", "no internet name"),
        ("ann@example.com.", "no internet name"),
        ("ann@-example.com", "no internet name"),
        ("ann@example-.com", "no internet name"),
        ("ann@ex_ample.com", "no internet name"),
        ("ann@ab--cd.com", "no internet name"),
        ("ann@xn--zz.com", "no internet name"),
        ("ann@127.0.0.1", "no internet name"),
        ("ann@[127.0.0.1]", "IP address"),
        ("ann@i❤.ws", "no internet name"),
        (".ann@example.com", "a dot"),
        ("ann.@example.com", "a dot"),
        ("a..n@example.com", "a dot"),
        ('"ann lee"@example.com', "quoted"),
        ("änn@example.com", "SMTPUTF8"),
        ("\u212aen@example.com", "SMTPUTF8"),  # lower-cased by Unicode's rules, the Kelvin sign is a k
        ("\ufeffann@example.com", "SMTPUTF8"),
        ("ann@example.com\r\nBcc: bob@example.com", "more than one @"),
        ("ann\n@example.com", "line break or control"),
        ("ann@example.com\nx", "line break or control"),
        ("ann\x00@example.com", "line break or control"),
        (f"{'l' * 65}@example.com", "longer than 64"),
        (f"a@{'d' * 64}.example", "no internet name"),
        (f"{'l' * 64}@{'.'.join(['d' * 50] * 4)}", "longer than 254"),
        ("x" * 10_000_000, "longer than 254"),
        ("ü@" * 5_000_000, "longer than 254"),
    ],
)
def test_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidAddress, match=re.escape(reason)):
        normalise(text)


def test_the_longest_address_passes_and_one_more_character_does_not() -> None:
    domain = ".".join(["d" * 47] * 4)
    longest = f"{'l' * (254 - len(domain) - 1)}@{domain}"
    assert normalise(longest) == longest
    with pytest.raises(InvalidAddress, match="longer than 254"):
        normalise(f"l{longest}")


@given(st.text(max_size=40), st.text('ab.-_@<>" \u00a0ü\n[]+,', max_size=40))
def test_reasons_repeat_nothing_of_the_address(local: str, domain: str) -> None:
    text = f"{local}secretpart@secretdomain{domain}"
    outcome = attempt(text)
    if isinstance(outcome, Address):
        assert re.fullmatch(r"[a-z0-9!#$%&'*+/=?^_`{|}~.-]+@[a-z0-9.-]+", outcome)
        assert normalise(outcome) == outcome
    else:
        assert "secret" not in str(outcome)
        assert isinstance(outcome, DataError)


def attempt(text: str) -> Address | InvalidAddress:
    try:
        return normalise(text)
    except InvalidAddress as error:
        return error


ATOM = st.text("abzAZ019!#$%&'*+/=?^_`{|}~-", min_size=1, max_size=10)
LABEL = st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9]{0,8}[a-zA-Z0-9])?", fullmatch=True)


@given(st.lists(ATOM, min_size=1, max_size=4), st.lists(LABEL, min_size=1, max_size=4))
def test_every_plain_address_is_its_own_lower_case(atoms: list[str], labels: list[str]) -> None:
    text = f"{'.'.join(atoms)}@{'.'.join(labels)}.com"
    assert normalise(f"\u00a0{text} ") == text.lower()


@pytest.mark.parametrize(
    ("text", "mailbox"),
    [
        ("ann@example.com", Mailbox(None, Address("ann@example.com"))),
        ("<Ann@example.com>", Mailbox(None, Address("ann@example.com"))),
        ("Ann Lee <ann@example.com>", Mailbox("Ann Lee", Address("ann@example.com"))),
        ("  Größe & Co  <ann@bücher.example> ", Mailbox("Größe & Co", Address("ann@xn--bcher-kva.example"))),
        ('"Lee, Ann" <ann@example.com>', Mailbox("Lee, Ann", Address("ann@example.com"))),
        ('"A \\"B\\" \\\\ C" <ann@example.com>', Mailbox('A "B" \\ C', Address("ann@example.com"))),
        ("Lee, Ann <ann@example.com>", Mailbox("Lee, Ann", Address("ann@example.com"))),
        ('"a@b" <ann@example.com>', Mailbox("a@b", Address("ann@example.com"))),
    ],
)
def test_mailboxes(text: str, mailbox: Mailbox) -> None:
    assert parse_mailbox(text) == mailbox


@pytest.mark.parametrize(
    "text",
    ["", "Ann", "Ann <>", "Ann <ann>", "a <ann@example.com>, b <bob@example.com>", "a@b <c@example.com>"],
)
def test_no_mailboxes(text: str) -> None:
    with pytest.raises(InvalidAddress):
        parse_mailbox(text)


@pytest.mark.parametrize("name", ["a\rb", "a\nb", "a\x00b", "a\x1fb", "a\x7fb", "a\x85b", "a\u2028b", "\t", "n" * 999])
def test_names_that_cannot_stand_in_a_header(name: str) -> None:
    with pytest.raises(InvalidName):
        check_name(name)


def test_a_name_with_a_line_break_is_no_sender() -> None:
    with pytest.raises(InvalidName, match="line break"):
        parse_mailbox("Ann\r\nBcc: x <ann@example.com>")


def test_names_that_stand() -> None:
    for name in ("Ann", "Ann 🎉", "محمد", 'Lee, "A"', "e\u0301", "n" * 998):
        assert check_name(f" {name}\u00a0") == name


def test_what_cannot_be_stored_is_replaced() -> None:
    assert clean_text("a\x00b\ud800c\udfffd🎉") == "a\ufffdb\ufffdc\ufffdd🎉"
    data = {"k\x00": ["\udc80", {"x": "\x00"}, 1, None, True], "n": ("\x00",)}
    assert clean_data(data) == {"k\ufffd": ["\ufffd", {"x": "\ufffd"}, 1, None, True], "n": ["\ufffd"]}
    assert data["n"] == ("\x00",)


@given(st.text())
def test_clean_text_is_utf8_without_nul(text: str) -> None:
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean_text(cleaned) == cleaned
