"""The catcher itself: what it keeps, how it misbehaves, and its life as a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from smtplib import SMTP, SMTPRecipientsRefused, SMTPServerDisconnected

import pytest

from postledger.demo.behaviours import TAGS, Accept, accept, by_tag
from postledger.demo.keepers import Caught
from tests.eventually import eventually


@contextmanager
def catcher(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The process and its port; terminated at the end."""
    port_file = folder / "port"
    port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "postledger.demo.catcher", "--port-file", str(port_file), *arguments]
    process = subprocess.Popen(command)

    def listens() -> None:
        assert port_file.exists()

    try:
        asyncio.run(eventually(listens, within=20))
        yield process, int(port_file.read_text())
    finally:
        process.terminate()
        process.wait(10)


def letter(number: int, text: str = "Dear Ada,\n.\n..dots\n") -> EmailMessage:
    mail = EmailMessage()
    mail["Message-ID"] = f"<{number}@news.example.com>"
    mail["X-Postledger-Delivery"] = f"7.{number}"
    mail["Subject"] = "Hello"
    mail.set_content(text)
    return mail


def lines(log: Path) -> list[dict]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_logs_each_copy_in_a_line_of_its_own(tmp_path: Path):
    log = tmp_path / "caught.jsonl"
    arguments = "--log", str(log), "--folder", str(tmp_path / "mails")
    with catcher(tmp_path, *arguments) as (_, port), SMTP("127.0.0.1", port) as client:
        for number in (1, 2, 1):
            client.send_message(letter(number), "news@example.com", [f"r{number}@example.net"])
        client.send_message(letter(3), "news@example.com", ["a@example.net", "b@example.net"])
    assert Counter((line["recipient"], line["message_id"]) for line in lines(log)) == {
        ("r1@example.net", "<1@news.example.com>"): 2,
        ("r2@example.net", "<2@news.example.com>"): 1,
        ("a@example.net", "<3@news.example.com>"): 1,
        ("b@example.net", "<3@news.example.com>"): 1,
    }
    assert lines(log)[0]["headers"] == {"x-postledger-delivery": "7.1"}
    assert datetime.fromisoformat(lines(log)[0]["at"]).tzinfo is not None
    kept = sorted((tmp_path / "mails").iterdir())
    assert len(kept) == 5
    assert b"\r\nDear Ada,\r\n.\r\n..dots\r\n" in kept[0].read_bytes()


def test_what_was_answered_250_survives_a_kill(tmp_path: Path):
    log = tmp_path / "caught.jsonl"
    with catcher(tmp_path, "--log", str(log)) as (process, port), SMTP("127.0.0.1", port) as client:
        for number in range(50):
            client.send_message(letter(number), "news@example.com", ["ada@example.net"])
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(SMTPServerDisconnected):
            client.noop()
    with catcher(tmp_path, "--log", str(log)) as (_, port), SMTP("127.0.0.1", port) as client:
        client.send_message(letter(50), "news@example.com", ["ada@example.net"])
    assert [line["message_id"] for line in lines(log)] == [f"<{number}@news.example.com>" for number in range(51)]


def test_a_taken_port_is_told_by_the_exit(tmp_path: Path):
    with catcher(tmp_path) as (_, port):
        command = [sys.executable, "-m", "postledger.demo.catcher", "--port", str(port)]
        second = subprocess.run(command, capture_output=True, timeout=20, check=False)
    assert second.returncode != 0
    assert b"in use" in second.stderr


def test_addresses_ask_for_their_treatment(tmp_path: Path):
    log = tmp_path / "caught.jsonl"
    with catcher(tmp_path, "--log", str(log), "--by-tag") as (_, port):

        def attempt(tag: str) -> str:
            """What the client saw, by a client that is not ours."""
            client = SMTP("127.0.0.1", port, timeout=20)
            try:
                client.send_message(letter(1), "news@example.com", [f"ada+{tag}@example.net"])
            except SMTPRecipientsRefused as refusal:
                return str(next(iter(refusal.recipients.values()))[0])
            except SMTPServerDisconnected:
                return "lost"
            finally:
                client.close()
            return "taken"

        seen = {tag: [attempt(tag) for _ in range(3)] for tag in [*TAGS, "plain"]}
    assert seen == {
        "busy": ["450", "taken", "taken"],
        "greylisted": ["450", "taken", "taken"],
        "gone": ["550", "550", "550"],
        "cut-before-dot": ["lost", "taken", "taken"],
        "cut-after-dot": ["lost", "taken", "taken"],
        "slow": ["taken", "taken", "taken"],
        "plain": ["taken", "taken", "taken"],
    }
    copies = Counter(line["recipient"] for line in lines(log))
    assert copies["ada+cut-before-dot@example.net"] == 2, "what was cut before the dot was not kept"
    assert copies["ada+cut-after-dot@example.net"] == 3, "what was cut after it was"
    assert copies["ada+gone@example.net"] == 0


def test_steps_out_of_order_are_refused(tmp_path: Path):
    with catcher(tmp_path) as (_, port), SMTP("127.0.0.1", port) as client:
        client.ehlo()
        assert client.rcpt("ada@example.net")[0] == 503
        assert client.docmd("DATA")[0] == 503
        assert client.mail("news@example.com")[0] == 250
        assert client.mail("news@example.com")[0] == 503
        assert client.docmd("RCPT", "TO nobody")[0] == 501
        assert client.docmd("VRFY", "ada")[0] == 502
        assert client.rset()[0] == 250
        client.send("x" * 5000)
        assert client.getreply()[0] == 500


def test_an_empty_body_ends_at_its_dot(tmp_path: Path):
    log = tmp_path / "caught.jsonl"
    with catcher(tmp_path, "--log", str(log)) as (_, port), SMTP("127.0.0.1", port) as client:
        client.ehlo()
        for _ in range(2):
            client.mail("news@example.com")
            client.rcpt("ada@example.net")
            assert client.docmd("DATA")[0] == 354
            client.send(b".\r\n")
            assert client.getreply()[0] == 250
    assert len(lines(log)) == 2


def test_headers_are_read_whatever_their_form():
    content = b"message-id:\r\n <folded@x>\r\nX-Postledger-Attempt: 2\r\n\r\nMessage-ID: <in the body@x>\r\n"
    caught = Caught.read("a@example.com", "b@example.com", content)
    assert (caught.message_id, caught.headers) == ("<folded@x>", {"x-postledger-attempt": "2"})
    assert Caught.read("a@example.com", "b@example.com", b"").message_id == ""


@pytest.mark.parametrize(
    ("recipient", "same"),
    [("ada+gone@example.net", TAGS["gone"]), ("ada+news@example.net", Accept()), ("ada@example.net", Accept())],
)
def test_by_tag(recipient: str, same: object):
    assert by_tag(recipient) == same
    assert accept(recipient) == Accept()
