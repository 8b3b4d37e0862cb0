"""`send` from end to end: what it answers, what it leaves, and what the same command does again."""

from email import message_from_bytes, policy
from pathlib import Path

from .conftest import LETTER, Desk, Shell

TABLES = ("campaigns", "recipients", "recipient_queue", "events", "imports", "import_rows", "senders", "templates")
STATUSES = ["pending", "sending", "sent", "failed", "skipped", "cancelled", "unknown"]


def rows_in(desk: Desk) -> list[int]:
    counts = (f"(SELECT count(*) FROM postledger.{table})" for table in TABLES)
    return desk.sql(f"SELECT ARRAY[{', '.join(counts)}]")


def test_the_campaign_as_json(desk: Desk) -> None:
    desk.shell.people(5)
    ran = desk.send("people.csv", "--json", name="spring news")
    assert (ran.code, ran.err) == (0, "")
    campaign = ran.document
    assert campaign["name"] == "spring news"
    assert isinstance(campaign["id"], str)
    assert (campaign["kind"], campaign["status"], campaign["pause"]) == ("bulk", "completed", None)
    assert campaign["audience"] == 5
    assert list(campaign["counts"]) == STATUSES
    assert campaign["counts"]["sent"] == 5
    assert sum(campaign["counts"].values()) == 5
    assert (campaign["subject"], campaign["from"]) == ("Hello {{ name }}", "Shop <news@shop.example>")
    for moment in ("created_at", "started_at", "finished_at"):
        assert len(campaign[moment]) == len("2026-11-30T12:00:00.000000Z")
        assert campaign[moment].endswith("Z")
    report = {"rows": 5, "accepted": 5, "duplicate_key": 0, "duplicate_address": 0, "invalid": 0, "suppressed": 0}
    assert {name: campaign["report"][name] for name in report} == report
    assert campaign["report"]["lines"] == []
    desk.verified()


async def test_for_people(shell: Shell) -> None:
    shell.people(3)
    ran = await shell.send("people.csv")
    assert ran.code == 0
    assert 'campaign "letter: Hello {{ name }}" (id 1), 3 recipients' in ran.out
    assert "3 rows: 3 accepted" in ran.out
    assert "sent" in ran.out.splitlines()[-2]
    assert "\x1b" not in ran.out + ran.err


def test_mails_as_files(desk: Desk) -> None:
    desk.shell.write("people.csv", "email,name,town\nann@x.example,Änn,Köln\n")
    desk.shell.write("letter.txt", "Dear {{ name }}")
    ran = desk.send("people.csv", "--json", via=f"file://{desk.shell.folder}/out", text="letter.txt")
    assert ran.code == 0
    (mail,) = (desk.shell.folder / "out").glob("*.eml")
    parsed = message_from_bytes(mail.read_bytes(), policy=policy.default)
    assert (parsed["Subject"], parsed["From"]) == ("Hello Änn", "Shop <news@shop.example>")
    assert parsed["List-Unsubscribe"].startswith("<https://mail.shop.example/u/")
    plain, html = parsed.iter_parts()
    assert plain.get_content().strip() == "Dear Änn"
    assert "Änn from Köln" in html.get_content()


async def test_people_from_standard_input(shell: Shell) -> None:
    ran = await shell.send("-", "--json", stdin=b"email,name,town\na@x.example,Ann,Ulm\n")
    assert ran.document["counts"]["sent"] == 1


def test_the_same_again_sends_nothing_and_new_people_are_added(desk: Desk) -> None:
    desk.shell.people(3)
    first = desk.send("people.csv", "--json")
    again = desk.send("people.csv", "--json")
    assert again.code == 0
    assert again.document["counts"] == first.document["counts"]
    assert again.document["version"] == first.document["version"]
    assert again.document["report"]["duplicate_key"] == 3
    desk.shell.people(5)
    more = desk.send("people.csv", "--json")
    assert (more.code, more.document["report"]["accepted"], more.document["counts"]["sent"]) == (0, 2, 5)
    assert more.document["id"] == first.document["id"]
    desk.verified()


def test_another_letter_under_the_same_name_is_refused(desk: Desk) -> None:
    desk.shell.people(1)
    desk.shell.write("other.html", LETTER + "<p>PS</p>")
    desk.send("people.csv", "--no-wait", name="spring")
    before = rows_in(desk)
    desk.shell.people(2)
    others = {
        "--subject": desk.send("people.csv", name="spring", subject="Goodbye"),
        "--html, --text": desk.send("people.csv", name="spring", html="other.html", text="other.html"),
        "--from": desk.send("people.csv", name="spring", **{"from": "Other <other@shop.example>"}),
        "--via": desk.send("people.csv", name="spring", via="null://?render=1"),
        "--unknown, --attempts, --give-up, --priority": desk.send(
            "people.csv", name="spring", unknown="hold", attempts="2", give_up="1h", priority="3"
        ),
    }
    for named, ran in others.items():
        assert ran.code == 65
        assert f"another {named}:" in ran.complaint
        assert "--name" in ran.complaint
    assert rows_in(desk) == before


def test_what_is_not_said_again_stays(desk: Desk) -> None:
    desk.shell.people(1)
    desk.send("people.csv", unknown="hold", attempts="2", give_up="90m", priority="7")
    desk.shell.people(2)
    ran = desk.send("people.csv", "--json")
    campaign = ran.document
    assert (ran.code, campaign["counts"]["sent"]) == (0, 2)
    assert [campaign[name] for name in ("unknown", "attempts", "give_up", "priority")] == ["hold", 2, "90m", 7]


def test_a_dry_run_writes_nothing(desk: Desk) -> None:
    desk.shell.people(3)
    before = rows_in(desk)
    ran = desk.send("people.csv", "--json", "--dry-run", via=f"file://{desk.shell.folder}/out")
    assert ran.code == 0
    assert ran.document["id"] is None
    assert ran.document["report"]["accepted"] == 3
    assert ran.document["first_message"]["To"] == "Person 0 <p0@example.org>"
    assert ran.document["first_message"]["Subject"] == "Hello Person 0"
    people = desk.send("people.csv", "--dry-run")
    assert "Subject: Hello Person 0" in people.out
    assert rows_in(desk) == before
    assert not (desk.shell.folder / "out").exists()


def test_a_dry_run_of_what_is_there_tells_what_is_new(desk: Desk) -> None:
    desk.shell.people(2)
    desk.send("people.csv")
    before = rows_in(desk)
    desk.shell.people(3)
    ran = desk.send("people.csv", "--json", "--dry-run")
    assert (ran.document["id"], ran.document["report"]["accepted"]) == ("1", 1)
    assert rows_in(desk) == before


def test_written_down_now_and_sent_by_a_worker(desk: Desk) -> None:
    desk.shell.people(3)
    written = desk.send("people.csv", "--json", "--no-wait")
    assert (written.code, written.document["status"], written.document["counts"]["pending"]) == (0, "sending", 3)
    worked = desk.run("work", "--until-idle", "--json")
    assert (worked.code, worked.document) == (0, {"outcomes": {"Sent": 3}})
    assert (desk.run("campaign", "show", "1", "--json")).document["status"] == "completed"


def test_an_end_with_failures(desk: Desk) -> None:
    desk.shell.write("people.csv", "email,name,town\na@x.example,Ann,Ulm\nb@x.example,,Ulm\n")
    ran = desk.send("people.csv", "--json", via="null://?render=1")
    assert (ran.code, ran.document["counts"]["sent"], ran.document["counts"]["failed"]) == (1, 1, 1)
    assert ran.document["status"] == "completed"
    told = desk.run("campaign", "retry", "1", "b@x.example")
    assert "1 to be tried again" in told.out
    again = desk.send("people.csv", via="null://?render=1")
    assert again.code == 1
    assert "campaign retry 1" in again.err


def test_suppressed_people_are_skipped(desk: Desk) -> None:
    desk.shell.people(2)
    told = desk.run("suppress", " P0@Example.ORG", "--reason", "asked by phone", "--json")
    assert told.document["reason"] == "asked by phone"
    assert len(bytes.fromhex(told.document["address_hash"])) == 32
    ran = desk.send("people.csv", "--json")
    assert (ran.code, ran.document["counts"]["sent"], ran.document["counts"]["skipped"]) == (0, 1, 1)
    assert ran.document["report"]["suppressed"] == 1


def test_send_again_goes_on_with_a_paused_campaign(desk: Desk) -> None:
    desk.shell.people(2)
    desk.send("people.csv", "--no-wait", name="spring")
    desk.run("campaign", "pause", "spring")
    ran = desk.send("people.csv", "--json", name="spring")
    assert (ran.code, ran.document["counts"]["sent"]) == (0, 2)


def test_a_cancelled_campaign_takes_nobody(desk: Desk) -> None:
    desk.shell.people(2)
    desk.send("people.csv", "--no-wait", name="spring")
    desk.run("campaign", "cancel", "spring")
    before = rows_in(desk)
    desk.shell.people(3)
    ran = desk.send("people.csv", name="spring")
    assert ran.code == 65
    assert "cancelled" in ran.complaint
    assert rows_in(desk) == before


async def test_a_first_send_installs_the_schema(empty_database: str, tmp_path: Path) -> None:
    shell = Shell(tmp_path, empty_database)
    shell.write("letter.html", LETTER)
    shell.people(1)
    refused = await shell.send("people.csv", "--dry-run")
    assert (refused.code, "postledger migrate" in refused.complaint) == (78, True)
    ran = await shell.send("people.csv", "--json")
    assert (ran.code, ran.document["counts"]["sent"]) == (0, 1)


async def test_without_any_database(tmp_path: Path) -> None:
    shell = Shell(tmp_path, "")
    shell.write("letter.html", LETTER)
    shell.people(2)
    ran = await shell.send("people.csv", "--json", data="private")
    assert (ran.code, ran.document["counts"]["sent"]) == (0, 2)
    verified = await shell.run("audit", "verify", "--json", "--data", "private")
    assert verified.document["checked"] == 2
    assert not (tmp_path / "private" / "pgdata" / "postmaster.pid").exists()
