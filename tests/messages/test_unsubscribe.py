"""The token of the unsubscribe link."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postledger.messages.unsubscribe import InvalidToken, UnsubscribeLinks, make_token, read_token

SECRET = bytes(range(32))
IDS = st.integers(0, 2**63 - 1)
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def test_the_form_that_is_fixed_for_ever() -> None:
    token = make_token(SECRET, 7, 300)
    ids = b"\x01" + (7).to_bytes(8, "big") + (300).to_bytes(8, "big")
    mac = hmac.new(SECRET, ids, hashlib.sha256).digest()[:16]
    assert token == base64.urlsafe_b64encode(ids + mac).decode().rstrip("=")
    assert token == "AQAAAAAAAAAHAAAAAAAAASxMNMCbh2PAm6EdtLZOrJkn"


@given(st.binary(min_size=1, max_size=80), IDS, IDS)
def test_reading_gives_back_what_was_made(secret: bytes, campaign: int, delivery: int) -> None:
    assert read_token(secret, make_token(secret, campaign, delivery)) == (campaign, delivery)


@given(IDS, IDS, st.integers(0, 43), st.sampled_from(ALPHABET))
def test_no_character_can_be_changed(campaign: int, delivery: int, index: int, letter: str) -> None:
    token = make_token(SECRET, campaign, delivery)
    changed = token[:index] + letter + token[index + 1 :]
    if changed != token:
        with pytest.raises(InvalidToken):
            read_token(SECRET, changed)


@given(st.one_of(st.text(max_size=60), st.text(ALPHABET, min_size=44, max_size=44)))
def test_anything_else_is_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        read_token(SECRET, token)


def test_another_secret_another_length_another_version() -> None:
    token = make_token(SECRET, 7, 300)
    newer = b"\x02" + base64.urlsafe_b64decode(token)[1:17]
    signed = newer + hmac.new(SECRET, newer, hashlib.sha256).digest()[:16]
    for wrong in (token + "=", token + "\n", token[:-1], base64.urlsafe_b64encode(signed).decode()):
        with pytest.raises(InvalidToken):
            read_token(SECRET, wrong)
    with pytest.raises(InvalidToken):
        read_token(b"another", token)


def test_each_delivery_has_its_own_link() -> None:
    links = UnsubscribeLinks("https://mail.example.com/sub", SECRET)
    assert links.url(7, 300) == f"https://mail.example.com/sub/u/{make_token(SECRET, 7, 300)}"
    assert len({links.url(campaign, delivery) for campaign in range(20) for delivery in range(50)}) == 1000
    assert "secret" not in repr(links).lower()
    assert repr(SECRET) not in repr(links)
