"""`--track`: off unless somebody says so, and only where links would lead somewhere; `work --metrics` beside it."""

import pytest

from .conftest import Desk, Ran

OK, USAGE, DATA, CONFIGURATION = 0, 64, 65, 78
URL = ("--url", "https://mail.shop.example")


def create(desk: Desk, *more: str, **environment: str) -> Ran:
    desk.shell.write("letter.html", "<p>Hello")
    letter = (
        "--subject",
        "s",
        "--from",
        "a@shop.example",
        "--html",
        "letter.html",
        "--via",
        "null://",
        "--kind",
        "standing",
    )
    return desk.run("campaign", "create", "--name", "spring", *letter, "--json", *more, **environment)


def test_nothing_is_tracked_unless_somebody_says_so(desk: Desk) -> None:
    assert create(desk, *URL).document["track"] == []
    assert create(desk, "--track", "clicks, opens", *URL).document["track"] == ["opens", "clicks"]
    assert create(desk, *URL).document["track"] == ["opens", "clicks"]  # not said: as it stands
    assert create(desk, "--track", "off").document["track"] == []
    logged = desk.sql(
        "SELECT string_agg(body ->> 'track', ' ' ORDER BY position) FROM postledger.events WHERE body ? 'track'"
    )
    assert logged == '["opens", "clicks"]'
    desk.verified()


@pytest.mark.parametrize(
    ("value", "code", "words"), [("reads", USAGE, "opens,clicks"), ("opens", CONFIGURATION, "--url")]
)
def test_what_cannot_be_is_refused(desk: Desk, value: str, code: int, words: str) -> None:
    ran = create(desk, "--track", value, POSTLEDGER_URL="")
    assert ran.code == code
    assert words in ran.complaint


def test_once_it_has_begun_it_stays(desk: Desk) -> None:
    create(desk, "--track", "opens", *URL)
    desk.run("campaign", "start", "spring")
    ran = create(desk, "--track", "off", *URL)
    assert (ran.code, "--track" in ran.complaint) == (DATA, True)
    assert create(desk, *URL).code == OK


def test_a_worker_shows_what_it_measures_where_it_is_told_to(desk: Desk) -> None:
    ran = desk.run("work", "--until-idle", "--metrics", "127.0.0.1:0")
    assert ran.code == OK
    assert "/metrics" in ran.err
    assert desk.run("work", "--until-idle", "--metrics", "nowhere").code == CONFIGURATION
