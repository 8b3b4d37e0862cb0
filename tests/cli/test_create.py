"""`campaign create`: a campaign that is written down, to be filled by `send` or by applications."""

import pytest

from .conftest import Desk, Ran

OK, USAGE, DATA, CONFIGURATION = 0, 64, 65, 78


def create(desk: Desk, *more: str, **flags: str) -> Ran:
    whole = {
        "name": "welcome",
        "subject": "Welcome",
        "from": "Shop <hello@shop.example>",
        "html": "welcome.html",
        "via": "null://",
        **flags,
    }
    if not (desk.shell.folder / "welcome.html").exists():
        desk.shell.write("welcome.html", "<p>Welcome, {{ name|default('you') }}</p>")
    return desk.run(
        "campaign", "create", *(part for name, value in whole.items() for part in (f"--{name}", value)), *more
    )


def enqueue(desk: Desk, address: str) -> str:
    return desk.sql(f"SELECT postledger.enqueue('welcome', '{address}')")


def test_a_standing_campaign_takes_what_applications_queue(desk: Desk) -> None:
    ran = create(desk, "--json", kind="standing", priority="7", expires="1h")
    shown = ran.document
    assert (ran.code, shown["kind"], shown["status"], shown["audience"]) == (OK, "standing", "draft", 0)
    enqueue(desk, "ann@x.example")
    assert desk.run("campaign", "start", "welcome", "--json").document["status"] == "sending"
    enqueue(desk, "ann@x.example")
    assert desk.run("work", "--until-idle").code == OK
    shown = desk.run("campaign", "show", "welcome", "--json").document
    assert (shown["status"], shown["counts"]["sent"]) == ("sending", 2)
    desk.verified()


def test_it_says_what_the_letter_needs_and_what_comes_next(desk: Desk) -> None:
    desk.shell.write("welcome.html", "<p>Welcome, {{ name }} from {{ town }}</p>")
    ran = create(desk, kind="standing")
    assert "name, town" in ran.out
    assert "postledger campaign start" in ran.err


def test_again_before_it_has_begun_it_becomes_what_is_said(desk: Desk) -> None:
    first = create(desk, "--json", kind="standing").document
    second = create(desk, "--json", kind="standing", subject="Good day").document
    assert (first["id"], first["subject"], second["subject"]) == (second["id"], "Welcome", "Good day")
    assert create(desk, kind="standing", subject="Good day").code == OK
    desk.run("campaign", "start", "welcome")
    assert create(desk, kind="standing", subject="Good day").code == OK
    refused = create(desk, kind="standing", subject="Hello")
    assert (refused.code, "--subject" in refused.complaint, "--name" in refused.complaint) == (DATA, True, True)
    other_kind = create(desk)
    assert (other_kind.code, "standing" in other_kind.complaint) == (DATA, True)
    desk.verified()


def test_send_does_not_fill_a_standing_one(desk: Desk) -> None:
    create(desk, kind="standing")
    desk.shell.people(2)
    ran = desk.send("people.csv", name="welcome")
    assert (ran.code, "enqueue()" in ran.complaint) == (DATA, True)


def test_a_bulk_one_is_filled_and_started_by_send(desk: Desk) -> None:
    desk.shell.people(3)
    desk.shell.write("letter.html", "<p>Hello</p>")
    letter = {
        "name": "spring",
        "subject": "Hello {{ name }}",
        "from": "Shop <news@shop.example>",
        "html": "letter.html",
    }
    drafted = create(desk, "--json", **letter).document
    assert (drafted["kind"], drafted["status"]) == ("bulk", "draft")
    sent = desk.send("people.csv", "--json", name="spring").document
    assert (sent["id"], sent["status"], sent["counts"]["sent"]) == (drafted["id"], "completed", 3)
    desk.verified()


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ({"kind": "daily"}, USAGE, ["--kind", "bulk", "standing"]),
        ({"html": "nothing.html"}, DATA, ["nothing.html"]),
        ({"from": "nobody"}, DATA, ["--from", "no @"]),
        ({"via": "carrier-pigeon://loft"}, CONFIGURATION, ["carrier-pigeon://"]),
        ({"name": "a\nb"}, DATA, ["--name", "line break"]),
        ({"subject": "{{ name"}, DATA, ["--subject"]),
        ({"rate": "fast"}, USAGE, ["--rate", "100/s"]),
        ({"expires": "never"}, USAGE, ["--expires", "24h"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_found_before_the_database_is_asked(
    offline: Desk, flags: dict[str, str], code: int, says: list[str]
) -> None:
    ran = create(offline, **flags)
    assert (ran.code, ran.out) == (code, "")
    assert [part for part in says if part not in ran.complaint] == []
