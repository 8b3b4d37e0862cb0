from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.config import Config, load, redact
from postledger.errors import ConfigurationError


def test_defaults():
    assert load({}) == Config(
        database=None,
        listen=None,
        schema="postledger",
        data=Path(".postledger"),
        http=("127.0.0.1", 8025),
        url=None,
    )


def test_an_empty_variable_is_unset():
    names = ("DATABASE", "LISTEN", "SCHEMA", "DATA", "HTTP", "URL")
    assert load({f"POSTLEDGER_{name}": "" for name in names}) == load({})


def test_flags_win_over_variables_and_an_absent_flag_does_not():
    environ = {"POSTLEDGER_SCHEMA": "one", "POSTLEDGER_DATA": "/srv/one"}
    config = load(environ, schema="two", data=None)
    assert (config.schema, config.data) == ("two", Path("/srv/one"))


def test_a_misspelt_setting_is_a_programming_error():
    with pytest.raises(TypeError, match="databse"):
        load({}, databse="postgresql:///x")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:secret@db.example.com:5432/mail",
        "postgres:///mail",
        "postgresql://postgres@/postgres?host=/tmp/pg&port=5432",
        "postgresql://ada@one:5432,two:5433/mail",
        "postgresql://[::1]:5432/mail",
        "postgresql://ada:a%3Ab@host/mail",
    ],
)
def test_database_urls(url: str):
    assert load({"POSTLEDGER_DATABASE": url}).database == url


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"database": "mysql://ada:secret@host/mail"}, "--database"),
        ({"database": "host=db user=ada password=secret"}, "--database"),
        ({"database": "ada:secret@host/mail"}, "--database"),
        ({"database": "postgresql+asyncpg://ada:secret@host/mail"}, "--database"),
        ({"database": "postgresql://ada:secret@host:port/mail"}, "--database"),
        ({"database": "postgresql://ada:secret@host:65536/mail"}, "--database"),
        ({"database": "postgresql:///m", "listen": "tcp://ada:secret@host"}, "--listen"),
        ({"listen": "postgresql://ada:secret@host/mail"}, "no database is named"),
        ({"schema": "pg_mail"}, "--schema"),
        ({"schema": "information_schema"}, "--schema"),
        ({"schema": "é" * 32}, "63 bytes"),
        ({"schema": "a\nb"}, "--schema"),
        ({"schema": "a\udc80"}, "--schema"),
        ({"data": "~nobody-of-this-name/x"}, "--data"),
        ({"http": "8025"}, "--http"),
        ({"http": ":8025"}, "--http"),
        ({"http": "localhost:"}, "--http"),
        ({"http": "localhost:65536"}, "--http"),
        ({"http": "localhost:-1"}, "--http"),
        ({"http": "::1:8025"}, "--http"),
        ({"url": "mail.example.com"}, "--url"),
        ({"url": "ftp://mail.example.com"}, "--url"),
        ({"url": "https://"}, "--url"),
        ({"url": "https://mail.example.com:x"}, "--url"),
        ({"url": "https://[::1"}, "--url"),
        ({"url": "https://mail.example.com/?a=b"}, "--url"),
        ({"url": "https://ada:secret@mail.example.com"}, "--url"),
        ({"url": "https://mail.example.com/a b"}, "--url"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it_and_no_secret(flags: dict[str, str], named: str):
    with pytest.raises(ConfigurationError) as caught:
        load({}, **flags)
    message = str(caught.value)
    assert named in message
    assert "secret" not in message
    assert len(message.splitlines()) == 1


def test_an_error_names_the_variable_where_the_value_came_from_there():
    with pytest.raises(ConfigurationError, match=r"^POSTLEDGER_SCHEMA is 'pg_x'"):
        load({"POSTLEDGER_SCHEMA": "pg_x"})


def test_a_schema_may_have_63_bytes():
    assert load({}, schema="é" * 31 + "x").schema == "é" * 31 + "x"


@pytest.mark.parametrize(
    ("value", "expected"),
    [("0.0.0.0:80", ("0.0.0.0", 80)), ("[::1]:8025", ("::1", 8025)), ("localhost:0", ("localhost", 0))],
)
def test_http(value: str, expected: tuple[str, int]):
    assert load({"POSTLEDGER_HTTP": value}).http == expected


def test_the_public_url_loses_its_final_slash():
    assert load({"POSTLEDGER_URL": "https://example.com/mail/"}).url == "https://example.com/mail"


def test_data_under_the_home_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/ada")
    assert load({"POSTLEDGER_DATA": "~/mail"}).data == Path("/home/ada/mail")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:secret@host:5432/mail", "postgresql://ada:***@host:5432/mail"),
        ("postgresql://ada@host/mail", "postgresql://ada@host/mail"),
        ("postgresql://host:5432/mail", "postgresql://host:5432/mail"),
        ("postgresql://ada:se@cr/et@host/mail", "postgresql://ada:***@host/mail"),
        (
            "postgresql:///mail?host=/tmp&password=secret&port=1",
            "postgresql:///mail?host=/tmp&password=***&port=1",
        ),
        ("host=db password='se cret' dbname=x", "***"),
        ("ada:secret@host/mail", "***"),
        ("postledger", "postledger"),
        ("smtp://ada:secret@relay:587?starttls=required", "smtp://ada:***@relay:587?starttls=required"),
        ("mailgun://secret@example.com", "mailgun://***"),
        ("sendgrid://secret", "sendgrid://***"),
    ],
)
def test_redact(url: str, shown: str):
    assert redact(url) == shown


@settings(max_examples=200, deadline=None)
@given(
    scheme=st.sampled_from(["postgresql", "smtp", "mailgun"]),
    password=st.text(min_size=1).map(lambda text: f"<{text}>"),
)
def test_no_part_of_a_password_is_shown(scheme: str, password: str):
    assert redact(f"{scheme}://ada:{password}@host/mail") in (
        f"{scheme}://ada:***@host/mail",
        f"{scheme}://***",
    )


def test_proxies_are_networks() -> None:
    found = load({"POSTLEDGER_PROXIES": "10.0.0.0/8, 172.17.0.1 fd00::/8"}).proxies
    assert [str(network) for network in found] == ["10.0.0.0/8", "172.17.0.1/32", "fd00::/8"]
    assert load({}).proxies == ()
    with pytest.raises(ConfigurationError, match="POSTLEDGER_PROXIES"):
        load({"POSTLEDGER_PROXIES": "10.0.0.1/8"})
