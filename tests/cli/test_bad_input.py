"""Wrong input: one line that names what, where and the remedy, and a code; nothing is written."""

from pathlib import Path

import asyncpg
import pytest

from .conftest import Desk, Shell

USAGE, DATA, UNAVAILABLE, CONFIGURATION = 64, 65, 69, 78


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ({"to": "nobody.csv"}, DATA, ["nobody.csv", "No such file"]),
        ({"to": "."}, DATA, [".", "directory"]),
        ({"to": "empty.csv"}, DATA, ["empty.csv"]),
        ({"to": "no-email.csv"}, DATA, ["no-email.csv", "no column email", "'adress'"]),
        ({"to": "no-town.csv"}, DATA, ["no-town.csv", "{{ town }}", "email, name", "default"]),
        ({"html": "nothing.html"}, DATA, ["nothing.html", "No such file"]),
        ({"html": "empty.html"}, DATA, ["empty.html", "nothing to send"]),
        ({"html": "latin1.html"}, DATA, ["latin1.html", "line 2", "UTF-8"]),
        ({"html": "nul.html"}, DATA, ["nul.html", "line 1", "NUL"]),
        ({"html": "broken.html"}, DATA, ["broken.html", "line 3"]),
        ({"text": "broken.html"}, DATA, ["broken.html", "line 3"]),
        ({"subject": "{{ name"}, DATA, ["--subject", "}}"]),
        ({"subject": "Hello\r\nBcc: all@x.example"}, DATA, ["--subject", "line break"]),
        ({"subject": " "}, DATA, ["--subject", "empty"]),
        ({"subject": "x" * 100_000}, DATA, ["--subject", "100,000 characters"]),
        ({"subject": b"Hell\xf6"}, DATA, ["--subject", "UTF-8"]),
        ({"from": "news.shop.example"}, DATA, ["--from", "no @"]),
        ({"from": "Shop\nBcc: x <news@shop.example>"}, DATA, ["--from", "line break"]),
        ({"name": "spring\nnews"}, DATA, ["--name", "line break"]),
        ({"name": "x" * 201}, DATA, ["--name", "201"]),
        ({"via": "carrier-pigeon://loft"}, CONFIGURATION, ["carrier-pigeon://", "null://", "smtp://"]),
        ({"via": "relay.example"}, CONFIGURATION, ["no scheme"]),
        ({"via": "null://?fast=1"}, CONFIGURATION, ["'fast'", "render"]),
        ({"via": "smtp://a:env:NO_SUCH_VARIABLE@relay.example"}, CONFIGURATION, ["NO_SUCH_VARIABLE"]),
        ({"via": "ses://eu-west-1"}, USAGE, ["ses://", "not built yet", "smtp://"]),
        ({"query": "SELECT 1"}, USAGE, ["--to and --query", "--list NAME"]),
        ({"at": "tomorrow"}, USAGE, ["--at", "'tomorrow'", "Europe/Berlin"]),
        ({"at": "2026-12-01 09:00"}, USAGE, ["--at", "no time zone", "2026-12-01T09:00:00+01:00"]),
        ({"at": "2026-12-01 09:00 Berlin"}, USAGE, ["--at", "'Berlin'", "Europe/Berlin"]),
        ({"missed": "never"}, USAGE, ["--missed", "'never'", "24h"]),
        ({"expires": "0"}, USAGE, ["--expires", "'0'", "1s"]),
        ({"rate": "100"}, USAGE, ["--rate", "'100'", "100/s"]),
        ({"rate": "0/s"}, USAGE, ["--rate", "'0/s'", "per minute"]),
        ({"max_errors": "20"}, USAGE, ["--max-errors", "'20'", "20%", "off"]),
        ({"max_errors": "0%"}, USAGE, ["--max-errors", "'0%'", "1%"]),
        ({"colour": "red"}, USAGE, ["--colour", "postledger send --help"]),
        ({"give_up": "soon"}, USAGE, ["--give-up", "'soon'", "24h"]),
        ({"concurrency": "0"}, USAGE, ["--concurrency", "0"]),
        ({"unknown": "perhaps"}, USAGE, ["--unknown", "resend", "hold"]),
        ({"database": "mysql://db.example/shop"}, CONFIGURATION, ["--database", "mysql", "postgresql://"]),
        ({"database": "postgresql://db.example:port/x"}, CONFIGURATION, ["--database", "port"]),
        ({"schema": "pg_mine"}, CONFIGURATION, ["--schema", "pg_mine", "postledger"]),
        ({}, UNAVAILABLE, ["postgresql://user:***@127.0.0.1:1/none", "--database"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_what_is_wrong_is_found_before_the_database_is_asked(
    offline: Desk, flags: dict[str, str], code: int, says: list[str]
) -> None:
    shell = offline.shell
    shell.write("empty.csv", "")
    shell.write("no-email.csv", "adress,name\na@x.example,Ann\n")
    shell.write("no-town.csv", "email,name\na@x.example,Ann\n")
    shell.write("empty.html", "\n")
    shell.write("latin1.html", b"<p>\nGr\xfc\xdfe</p>")
    shell.write("nul.html", "<p>a\0b</p>")
    shell.write("broken.html", "<p>\n\n{% if name %}Hello")
    ran = offline.run(*shell.letter_to("people.csv", **flags))
    assert ran.code == code
    assert ran.out == ""
    assert "secret" not in ran.err
    for part in says:
        assert part in ran.complaint


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["projections", "rebuild"], USAGE, ["'projections'", "not built yet"]),
        (["erase", "--whatever", "x"], USAGE, ["'erase'", "not built yet"]),
        (["up", "--whatever", "x"], USAGE, ["--whatever", "postledger up --help"]),
        (["campaign", "schedule", "x", "--at", "now"], USAGE, ["--at", "'now'", "postledger campaign schedule --help"]),
        (["campaign", "schedule", "x"], USAGE, ["--at TIME", "--off"]),
        (["campaign", "schedule", "x", "--off", "--at", "2026-12-01T09:00Z"], USAGE, ["--at TIME", "--off"]),
        (["campaign", "pause", "x", "--until", "9:00"], USAGE, ["--until", "'9:00'"]),
        (["audit", "prove"], USAGE, ["'audit prove'", "not built yet"]),
        (["keys", "create"], USAGE, ["--scope", "postledger keys create --help"]),
        (["keys", "create", "--scope", "everything"], USAGE, ["--scope 'everything'", "send, read, audit, admin"]),
        (["keys", "create", "--scope", "send", "--name", ""], DATA, ["--name"]),
        (["keys", "revoke", "first"], DATA, ["a number", "postledger keys list"]),
        (["fly"], USAGE, ["fly", "postledger --help"]),
        (["campaign", "fly"], USAGE, ["fly", "postledger campaign --help"]),
        (["campaign", "show"], USAGE, ["CAMPAIGN", "postledger campaign show --help"]),
        (["send"], USAGE, ["--subject", "postledger send --help"]),
        (["suppress", "not an address"], DATA, ["no @"]),
        (["suppress", "a@x.example", "--reason", "asked a@x.example"], DATA, ["--reason", "addresses"]),
        (["suppress", "a@x.example", "--reason", "a\nb"], DATA, ["--reason", "one line"]),
        (["campaign", "list"], UNAVAILABLE, ["127.0.0.1:1", "--database"]),
        (["audit", "verify"], UNAVAILABLE, ["127.0.0.1:1"]),
        (["work"], UNAVAILABLE, ["127.0.0.1:1"]),
        (["migrate"], UNAVAILABLE, ["127.0.0.1:1"]),
        (["migrate", "--schema", "x" * 64], CONFIGURATION, ["--schema", "63"]),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else None,
)
def test_each_command_says_in_one_line_what_is_wrong(
    offline: Desk, arguments: list[str], code: int, says: list[str]
) -> None:
    ran = offline.run(*arguments)
    assert ran.code == code
    assert ran.out == ""
    for part in says:
        assert part in ran.complaint


def test_a_link_that_there_is_no_address_for(offline: Desk) -> None:
    ran = offline.run(*offline.shell.letter_to("people.csv"), POSTLEDGER_URL="")
    assert (ran.code, "unsubscribe_url" in ran.complaint, "POSTLEDGER_URL" in ran.complaint) == (DATA, True, True)


def test_settings_from_the_environment_are_named_as_such(offline: Desk) -> None:
    ran = offline.run("campaign", "list", POSTLEDGER_DATABASE="mysql://x")
    assert (ran.code, "POSTLEDGER_DATABASE" in ran.complaint) == (CONFIGURATION, True)


async def test_a_database_that_is_not_there(shell: Shell) -> None:
    ran = await shell.run("campaign", "list", "--database", shell.database.replace("/test_", "/no_test_"))
    assert ran.code == UNAVAILABLE
    assert "does not exist" in ran.complaint


async def test_a_database_without_the_schema_is_left_alone(empty_database: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, empty_database)
    for arguments in (["campaign", "list"], ["work"], ["audit", "verify"]):
        ran = await shell.run(*arguments)
        assert ran.code == CONFIGURATION
        assert "postledger migrate" in ran.complaint


async def test_a_newer_schema_is_refused(shell: Shell, conn: asyncpg.Connection) -> None:
    await conn.execute("INSERT INTO postledger.schema_version (version) VALUES (99)")
    shell.people(1)
    for ran in (await shell.run("campaign", "list"), await shell.send("people.csv"), await shell.run("migrate")):
        assert ran.code == CONFIGURATION
        assert "99" in ran.complaint
        assert "upgrade" in ran.complaint


async def test_nothing_is_written_for_a_relay_that_cannot_be_reached(shell: Shell, conn: asyncpg.Connection) -> None:
    shell.people(3)
    ran = await shell.send("people.csv", via="smtp://127.0.0.1:1?starttls=off")
    assert ran.code == UNAVAILABLE
    assert "127.0.0.1:1" in ran.complaint
    assert await conn.fetchval("SELECT count(*) FROM postledger.campaigns") == 0


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("", ["nobody to write to", "no rows"]),
        ("nobody,Ann,Ulm\n", ["nobody to write to", "1 row", "line 2", "no @"]),
    ],
)
async def test_nobody_to_write_to(shell: Shell, conn: asyncpg.Connection, rows: str, says: list[str]) -> None:
    shell.write("people.csv", f"email,name,town\n{rows}")
    ran = await shell.send("people.csv")
    assert ran.code == DATA
    for part in says:
        assert part in ran.complaint
    left = "SELECT (SELECT count(*) FROM postledger.campaigns) + (SELECT count(*) FROM postledger.import_rows)"
    assert await conn.fetchval(left) == 0


async def test_a_name_that_nobody_has_is_found_before_the_first_mail(shell: Shell, conn: asyncpg.Connection) -> None:
    shell.write("people.csv", "email,name,town\na@x.example,,Ulm\nb@x.example, ,Bonn\n")
    ran = await shell.send("people.csv")
    assert ran.code == DATA
    assert "{{ name }}" in ran.complaint
    assert await conn.fetchval("SELECT count(*) FROM postledger.campaigns") == 0


async def test_bad_rows_are_reported_and_the_others_sent(shell: Shell) -> None:
    rows = [b"a@x.example,A\0nn,Ulm", b"b@x.example,B\xed\xa0\x80b,Ulm", b"not an address,C,Ulm", b"a@x.example,D,Ulm"]
    shell.write("people.csv", b"email,name,town\n" + b"\n".join(rows) + b'\nc@x.example,"C\r\nd",Ulm\n')
    ran = await shell.send("people.csv", "--json", via="null://?render=1")
    report = ran.document["report"]
    assert (report["rows"], report["accepted"]) == (5, 2)
    assert [(line["line"], line["outcome"]) for line in report["lines"]] == [
        (4, "invalid"),
        (5, "duplicate_address"),
        (6, "invalid"),
    ]
    assert all(line["reason"] for line in report["lines"])
    assert ran.code == 0
    assert ran.document["counts"]["sent"] == 2


def test_tracebacks_are_for_those_who_ask(offline: Desk) -> None:
    quiet = offline.run("campaign", "list")
    verbose = offline.run("campaign", "list", "--verbose")
    assert "Traceback" not in quiet.err
    assert "Traceback" in verbose.err
    assert "secret" not in quiet.err + verbose.err
