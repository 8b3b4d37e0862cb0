"""Lists: people come in by a file or a query, leave by themselves, and nobody brings back who has left."""

from typing import Any

import pytest

from .conftest import Desk, Ran

OK, DATA = 0, 65
LETTER = "<p>Hello {{ name|default('you') }} in {{ town|default('town') }}</p>"


def put(desk: Desk, people: str, name: str = "digest", header: str = "email,name,town") -> dict[str, Any]:
    desk.shell.write("list.csv", f"{header}\n{people}\n")
    ran = desk.run("contacts", "import", "--list", name, "--to", "list.csv", "--quiet", "--json")
    assert ran.code == OK, ran.err
    return ran.document


def send(desk: Desk, name: str = "digest", *more: str, campaign: str = "spring") -> Ran:
    desk.shell.write("letter.html", LETTER)
    return desk.run(
        *("send", "--list", name, "--subject", "Hello", "--from", "news@shop.example", "--html", "letter.html"),
        *("--via", "null://", "--name", campaign, "--quiet", "--json", *more),
    )


def leave(desk: Desk, address: str, *where: str) -> Ran:
    return desk.run("contacts", "unsubscribe", address, *where, "--json")


def counts(desk: Desk) -> dict[str, tuple[int, int]]:
    items = desk.run("contacts", "lists", "--json").document["items"]
    return {item["name"]: (item["subscribed"], item["unsubscribed"]) for item in items}


def outcomes(document: dict[str, Any]) -> dict[str, int]:
    return {name: n for name, n in document.items() if name not in ("list", "lines", "lines_omitted", "rows") and n}


def test_people_of_a_file_are_put_on_a_list_and_written_to(desk: Desk) -> None:
    found = put(desk, "Ann@X.example,Ann,Ulm\nbob@x.example,,Bonn\nno address,Eve,\nANN@x.example,Anna,Kiel")
    assert outcomes(found) == {"added": 2, "duplicate": 1, "invalid": 1}
    assert [(line["line"], line["outcome"]) for line in found["lines"]] == [(2, "duplicate"), (4, "invalid")]
    assert counts(desk) == {"digest": (2, 0)}
    document = send(desk).document
    assert (document["status"], document["counts"]["sent"]) == ("completed", 2)
    known = "SELECT string_agg(email || '/' || coalesce(name, '') || '/' || (data->>'town'), ' ' ORDER BY email)"
    assert desk.sql(f"{known} FROM postledger.recipients") == "ann@x.example/Anna/Kiel bob@x.example//Bonn"
    desk.verified()


def test_the_newest_import_says_what_is_known_of_somebody(desk: Desk) -> None:
    put(desk, "ann@x.example,Ann,Ulm")
    assert outcomes(put(desk, "ann@x.example,,Bonn\nbob@x.example,Bob,Kiel")) == {"added": 1, "present": 1}
    assert (
        desk.sql("SELECT name || (data->>'town') FROM postledger.contacts WHERE email = 'ann@x.example'") == "AnnBonn"
    )
    desk.verified()


def test_who_leaves_a_list_stays_on_the_others(desk: Desk) -> None:
    for name in ("digest", "offers"):
        put(desk, "ann@x.example,Ann,Ulm\nbob@x.example,Bob,Ulm", name)
    assert leave(desk, " ANN@x.example", "--list", "digest").document["changed"]
    assert not leave(desk, "ann@x.example", "--list", "digest").document["changed"]
    assert counts(desk) == {"digest": (1, 1), "offers": (2, 0)}
    assert send(desk).document["counts"]["sent"] == 1
    assert send(desk, "offers", campaign="offers").document["counts"]["sent"] == 2
    desk.verified()


@pytest.mark.parametrize("where", [("--list", "digest"), ()], ids=["list", "all"])
def test_no_import_brings_back_who_has_left(desk: Desk, where: tuple[str, ...]) -> None:
    put(desk, "ann@x.example,Ann,Ulm\nbob@x.example,Bob,Ulm")
    leave(desk, "ann@x.example", *where)
    leave(desk, "new@x.example", *where)
    found = put(desk, "ann@x.example,Ann,Ulm\nnew@x.example,New,Ulm\nbob@x.example,Bob,Ulm")
    assert outcomes(found) == {"present": 1, "unsubscribed": 2}
    assert send(desk).document["counts"]["sent"] == 1
    desk.verified()


def test_who_leaves_everything_is_in_no_campaign(desk: Desk) -> None:
    put(desk, "ann@x.example,Ann,Ulm\nbob@x.example,Bob,Ulm")
    assert leave(desk, "ann@x.example").document == {"list": None, "subscribed": False, "changed": True}
    assert counts(desk) == {"digest": (1, 1)}
    assert outcomes(put(desk, "ann@x.example,Ann,Ulm", "offers")) == {"unsubscribed": 1}
    desk.shell.write("people.csv", "email,name,town\nann@x.example,Ann,Ulm\nbob@x.example,Bob,Ulm\n")
    report = desk.send("people.csv", "--json", "--no-wait", name="by file").document["report"]
    assert (report["accepted"], report["suppressed"]) == (1, 1)
    desk.verified()


def test_who_leaves_while_the_mail_waits_does_not_get_it(desk: Desk) -> None:
    put(desk, "ann@x.example,Ann,Ulm\nbob@x.example,Bob,Ulm\neve@x.example,Eve,Ulm")
    assert send(desk, "digest", "--no-wait").document["counts"]["pending"] == 3
    leave(desk, "ann@x.example", "--list", "digest")
    leave(desk, "bob@x.example")
    done = send(desk).document
    assert (done["counts"]["sent"], done["counts"]["skipped"]) == (1, 2)
    reasons = (
        "SELECT string_agg(body->>'reason', ' ' ORDER BY delivery_id) FROM postledger.events WHERE type = 'Skipped'"
    )
    assert desk.sql(reasons) == "unsubscribed unsubscribed"
    desk.verified()


def test_who_subscribes_and_was_never_heard_of_is_written_to(desk: Desk) -> None:
    put(desk, "bob@x.example,Bob,Ulm")
    assert desk.run("contacts", "subscribe", " New@X.example", "--list", "digest", "--json").document["changed"]
    assert send(desk).document["counts"]["sent"] == 2
    assert desk.sql("SELECT count(*) FROM postledger.recipients WHERE email = 'new@x.example'") == 1
    desk.verified()


def test_the_way_back_is_their_own(desk: Desk) -> None:
    put(desk, "ann@x.example,Ann,Ulm")
    leave(desk, "ann@x.example", "--list", "digest")
    assert desk.run("contacts", "subscribe", "ann@x.example", "--list", "digest", "--json").document["changed"]
    assert counts(desk) == {"digest": (1, 0)}
    leave(desk, "ann@x.example")
    refused = desk.run("contacts", "subscribe", "ann@x.example", "--list", "digest")
    assert (refused.code, "unsubscribed" in refused.complaint) == (DATA, True)
    assert "ann@" not in refused.complaint
    desk.verified()


def test_new_people_of_the_list_are_added_by_the_same_command(desk: Desk) -> None:
    put(desk, "ann@x.example,Ann,Ulm")
    assert send(desk).document["counts"]["sent"] == 1
    put(desk, "bob@x.example,Bob,Ulm")
    again = send(desk).document
    assert (again["report"]["accepted"], again["counts"]["sent"]) == (1, 2)
    other = send(desk, "other")
    assert (other.code, "no list is called 'other'" in other.complaint) == (DATA, True)
    put(desk, "eve@x.example,Eve,Ulm", "other")
    refused = send(desk, "other")
    assert (refused.code, "another --list" in refused.complaint) == (DATA, True)
    desk.verified()


def test_people_of_a_query_are_put_on_a_list(desk: Desk) -> None:
    query = "SELECT 'p' || n || '@x.example' AS email, 'P' AS name, n AS number FROM generate_series(1, 5) n"
    ran = desk.run("contacts", "import", "--list", "digest", "--query", query, "--quiet", "--json")
    assert outcomes(ran.document) == {"added": 5}
    assert desk.sql("SELECT data::text FROM postledger.contacts ORDER BY id LIMIT 1").startswith('{"number": ')
    wrong = desk.run("contacts", "import", "--list", "new", "--query", "SELECT 1 AS n", "--quiet")
    assert (wrong.code, "no column email" in wrong.complaint) == (DATA, True)
    assert counts(desk) == {"digest": (5, 0)}
    desk.verified()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("unsubscribe", "ann@x.example", "--list", "nothing"), DATA, "no list is called 'nothing'"),
        (("unsubscribe", "nobody"), DATA, "no @"),
        (("subscribe", "ann@x.example", "--list", "nothing"), DATA, "no list is called 'nothing'"),
        (("subscribe", "ann@x.example"), 64, "--list"),
        (("import", "--list", "x", "--to", "nobody.csv"), DATA, "nobody.csv"),
        (("import", "--list", "a\nb", "--to", "-"), DATA, "--list"),
        (("import", "--list", "x"), 64, "--query SQL"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_what_is_wrong_is_said_in_one_line(desk: Desk, arguments: tuple[str, ...], code: int, says: str) -> None:
    ran = desk.run("contacts", *arguments)
    assert (ran.code, says in ran.complaint) == (code, True), ran.err


def test_a_list_on_which_nobody_is(desk: Desk) -> None:
    put(desk, "ann@x.example,Ann,Ulm")
    leave(desk, "ann@x.example", "--list", "digest")
    ran = send(desk)
    assert (ran.code, "nobody to write to" in ran.complaint) == (DATA, True)
