"""Sender URLs: found by scheme, refused by name, and never shown with their secrets."""

from pathlib import Path

import pytest

from postledger.errors import ConfigurationError
from postledger.workers.providers.registry import make
from postledger.workers.providers.urls import redact

SECRET = "s3cr3t"


def refusal(url: str) -> str:
    with pytest.raises(ConfigurationError) as told:
        make(url, concurrency=1)
    line = str(told.value)
    assert "\n" not in line
    assert SECRET not in line
    return line


def test_an_unknown_scheme_is_named_with_those_there_are():
    line = refusal(f"pigeon://{SECRET}@coop")
    assert "no provider pigeon://" in line
    assert "file://, null://, smtp://, smtps://" in line


@pytest.mark.parametrize("scheme", ["ses", "mailgun", "sendgrid", "postmark"])
def test_a_scheme_that_is_not_built_yet_is_refused_by_name(scheme: str):
    assert f"{scheme}:// is not built yet" in refusal(f"{scheme}://{SECRET}@example.com")


@pytest.mark.parametrize("url", ["", "relay.example.com", "smtp:relay.example.com", "//relay", SECRET])
def test_no_scheme(url: str):
    assert "begins with no scheme" in refusal(url)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("smtp://relay?colour=red", "smtp:// knows no option 'colour'; it takes only starttls, timeout, helo"),
        ("smtps://relay?starttls=off", "smtps:// knows no option 'starttls'"),
        ("null://?rendr=1", "null:// knows no option 'rendr'; it takes only render"),
        ("file:///tmp/letters?mode=0600", "file:// knows no option 'mode'; it takes no options"),
        ("smtp://relay?helo=a&helo=b", "option 'helo' is given twice"),
        ("smtp://relay?starttls=maybe", "option starttls=maybe must be one of required, optional, off"),
        ("smtp://relay?verify=never", "option verify=never must be one of yes, no"),
        ("smtp://relay?timeout=soon", "option timeout=soon must be a number of seconds"),
        ("smtp://relay?timeout=0", "option timeout=0 must be a number of seconds"),
        ("smtp://relay?timeout=nan", "option timeout=nan must be a number of seconds"),
        ("smtp://relay?helo=two%20words", "option helo must be one ASCII host name"),
        ("smtp://relay?helo=a%0D%0AMAIL", "option helo must be one ASCII host name"),
        ("smtp://relay?ca=/no/such/file.pem", "option ca=/no/such/file.pem names no file of certificates"),
        ("smtp://", "smtp:// names no host"),
        ("smtp://:25", "smtp:// names no host"),
        ("smtp://relay/path", "takes no path after the host"),
        ("smtp://relay:port", "has no readable host and port"),
        ("smtp://relay:99999", "has no readable host and port"),
        ("smtp://[::1", "has no readable host and port"),
        (f"smtp://user:{SECRET}/x@relay", "has no readable host and port"),
        (f"smtp://user:12/{SECRET}@relay", "takes no path after the host"),
        (f"smtp://user:{SECRET}#x@relay", "has no readable host and port"),
        ("smtp://relay#x", "takes no '#'"),
        ("smtp://user@relay", "a user without a password"),
        (f"smtp://:{SECRET}@relay", "a user without a password or the reverse"),
        ("smtp://user:env:NO_SUCH_VARIABLE@relay", "the variable NO_SUCH_VARIABLE is not set"),
        (f"smtp://user:{SECRET}@relay?starttls=off", "would travel in clear text"),
        ("smtp://b\u00fccher.example", "must be written in its ASCII form"),
        ("null://somewhere", "null:// goes nowhere"),
        ("null://?render=yes", "option render=yes must be one of 0, 1"),
        ("file://folder", "file:// needs an absolute folder"),
        ("file://", "file:// needs an absolute folder"),
    ],
)
def test_a_bad_url_is_told_in_one_line(url: str, said: str):
    assert said in refusal(url)


def test_what_is_built_in():
    names = {
        "smtp://relay.example.com": "smtp",
        f"smtp://user:{SECRET}@relay.example.com:587?starttls=required&timeout=30&helo=me.example.com": "smtp",
        f"smtp://user:{SECRET}@localhost?starttls=off": "smtp",
        f"smtp://user:{SECRET}@relay?starttls=off&insecure_auth=1": "smtp",
        f"SMTPS://user:{SECRET}@relay.example.com?verify=no": "smtp",
        "smtp://[::1]:2525": "smtp",
        "file:///var/spool/letters": "file",
        "null://": "null",
        "null://?render=1": "null",
    }
    assert {url: make(url, concurrency=1).name for url in names} == names


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"smtp://ada:{SECRET}@relay:587?starttls=off", "smtp://ada:***@relay:587?starttls=off"),
        (f"cannot use smtp://ada:{SECRET}@relay here", "cannot use smtp://ada:***@relay here"),
        (f"smtp://ada:{SECRET}@{SECRET}/{SECRET}@relay", "smtp://ada:***@relay"),
        (f"mailgun://{SECRET}@news.example.com", "mailgun://***@news.example.com"),
        (f"sendgrid://{SECRET}", "sendgrid://***"),
        (f"postmark://{SECRET} and more", "postmark://*** and more"),
        ("smtp://relay:25", "smtp://relay:25"),
        ("file:///var/spool/letters", "file:///var/spool/letters"),
        ("no url at all", "no url at all"),
    ],
)
def test_redact(text: str, shown: str):
    assert redact(text) == shown


FOREIGN = """
from postledger.workers.providers.null import NullProvider

def make(url: str, *, concurrency: int) -> NullProvider:
    return NullProvider(name=f"{url} x {concurrency}")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that brings the schemes pigeon:// and broken://, as pip would have put it there."""
    (tmp_path / "pigeon_provider.py").write_text(FOREIGN)
    facts = tmp_path / "pigeon-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[postledger.providers]\n"
        "pigeon = pigeon_provider:make\nbroken = no_such_module:make\nsmtp = pigeon_provider:make\n"
    )
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_an_installed_package_brings_its_scheme():
    assert make("pigeon://coop", concurrency=7).name == "pigeon://coop x 7"
    assert "pigeon://" in refusal("owl://tower")


@pytest.mark.usefixtures("installed")
def test_no_package_takes_a_scheme_that_is_built_in():
    assert make("smtp://relay", concurrency=1).name == "smtp"


@pytest.mark.usefixtures("installed")
def test_a_package_that_cannot_be_loaded_is_named():
    line = refusal(f"broken://{SECRET}")
    assert "broken:// (no_such_module:make) is installed but cannot be loaded" in line
