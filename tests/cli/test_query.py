"""`send --query`: people from the user's own tables, by one statement that has its login's rights and only reads."""

import asyncio
import itertools
from collections.abc import Iterator

import asyncpg
import pytest

from tests.servers import PrivateServer

from .conftest import Desk, Ran

OK, DATA = 0, 65
_NUMBERS = itertools.count(1)

TABLES = """
CREATE TABLE users (id int PRIMARY KEY, email text, name text, town text, paid numeric(8, 2));
INSERT INTO users VALUES (1, 'ann@x.example', 'Ann', 'Ulm', 12.50), (2, 'bob@x.example', 'Bob', 'Bonn', 7);
CREATE TABLE secrets_of_others (email text);
CREATE SEQUENCE numbers;
CREATE FUNCTION grow(text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
BEGIN INSERT INTO users (id, email) VALUES (3, $1 || '.too'); RETURN $1; END $$;
CREATE FUNCTION by_the_owner(text) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY DEFINER AS $$
BEGIN DELETE FROM users; RETURN $1; END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON users TO {login};
GRANT USAGE ON SEQUENCE numbers TO {login};
GRANT USAGE ON SCHEMA postledger TO {login};
GRANT SELECT ON postledger.schema_version TO {login};
"""


def execute(dsn: str, statement: str) -> None:
    async def run() -> None:
        conn = await asyncpg.connect(dsn)
        try:
            await conn.execute(statement)
        finally:
            await conn.close()

    asyncio.run(run())


@pytest.fixture
def login(server: PrivateServer, desk: Desk) -> Iterator[str]:
    """A login that owns nothing: it may become postledger_app, whose rights it has not itself."""
    name = f"mailer_{next(_NUMBERS)}"
    execute(server.admin_dsn, f"CREATE ROLE {name} LOGIN NOINHERIT IN ROLE postledger_app")
    execute(desk.shell.database, TABLES.format(login=name))
    yield name
    execute(desk.shell.database, f"DROP OWNED BY {name}")
    execute(server.admin_dsn, f"DROP ROLE {name}")


def dsn_of(desk: Desk, login: str) -> str:
    """The same database by that login: who may reach the socket is let in under any name."""
    before, at, after = desk.shell.database.partition("@")
    assert at
    return f"{before.partition('//')[0]}//{login}@{after}"


def send(desk: Desk, login: str, query: str, *more: str, letter: str = "<p>Hello</p>") -> Ran:
    desk.shell.write("letter.html", letter)
    return desk.run(
        *("send", "--query", query, "--subject", "Hello", "--from", "news@shop.example", "--html", "letter.html"),
        *("--via", "null://", "--name", "spring", "--no-wait", "--quiet", "--json", *more, "--database"),
        dsn_of(desk, login),
    )


def untouched(desk: Desk) -> bool:
    return desk.sql(
        "SELECT (SELECT count(*) FROM users) = 2 AND NOT EXISTS (SELECT FROM postledger.campaigns)"
        " AND NOT EXISTS (SELECT FROM postledger.import_rows) AND NOT EXISTS (SELECT FROM postledger.suppressions)"
        " AND NOT EXISTS (SELECT FROM postledger.imports)"
    )


REFUSED = {
    "SELEC email FROM users": ["syntax error", "one SELECT"],
    "": ["syntax error", "one SELECT"],
    "SELECT email FROM users; SELECT email FROM users": ["syntax error", '";"', "one SELECT"],
    "SELECT email FROM users; DROP TABLE users": ["syntax error", "one SELECT"],
    "SELECT email FROM users) AS q; DELETE FROM users; SELECT * FROM (SELECT email FROM users": ["multiple commands"],
    "DELETE FROM users RETURNING email": ["syntax error", "one SELECT"],
    "WITH gone AS (DELETE FROM users RETURNING email) SELECT email FROM gone": ["data-modifying", "one SELECT"],
    "SELECT email FROM users WHERE id = $1": ["parameters", "write the values into it"],
    "SELECT name FROM users": ["no column email"],
    "SELECT u.email, v.email FROM users u, users v": ["several columns", "'email'"],
    "SELECT email FROM nothing": ['"nothing" does not exist'],
    "SELECT mail AS email FROM users": ['"mail" does not exist'],
    "SELECT email, 1 / (id - id) AS n FROM users": ["division by zero"],
    "SELECT email, nextval('numbers') FROM users": ["read-only", "only reads"],
    "SELECT email FROM users FOR UPDATE": ["read-only", "only reads"],
    "SELECT grow(email) AS email FROM users": ["INSERT", "read-only", "only reads"],
    "SELECT by_the_owner(email) AS email FROM users": ["DELETE", "read-only", "only reads"],
    "SELECT set_config('transaction_read_only', 'off', true) || grow(email) AS email FROM users": ["read-write mode"],
    "SELECT email FROM secrets_of_others": ["permission denied", "secrets_of_others"],
    "SELECT email FROM postledger.recipients": ["permission denied"],
    "SELECT url AS email, secret FROM postledger.senders": ["permission denied"],
    "SELECT encode(inner_key, 'hex') AS email FROM postledger.secrets": ["permission denied"],
    "SELECT postledger.suppress(email, 'bounced', 'x')::text AS email FROM users": ["permission denied"],
    "SELECT email FROM users WHERE false": ["nobody to write to", "no rows"],
    "SELECT id AS email FROM users": ["nobody to write to", "row 1", "no @"],
    "SELECT NULL AS email FROM users": ["nobody to write to", "row 1", "empty"],
}


def test_a_query_that_is_of_no_use_says_why_and_leaves_nothing(desk: Desk, login: str) -> None:
    for query, says in REFUSED.items():
        ran = send(desk, login, query)
        assert (ran.code, ran.out) == (DATA, ""), f"{query}: {ran.err}"
        assert [part for part in says if part not in ran.complaint] == [], f"{query}: {ran.complaint}"
        assert untouched(desk), query


def test_a_login_that_takes_on_a_role_by_itself_does_not_lend_it_to_the_query(desk: Desk, login: str) -> None:
    execute(desk.shell.database, f"ALTER ROLE {login} SET role = postledger_app")
    ran = send(desk, login, "SELECT email FROM postledger.recipients")
    assert (ran.code, "permission denied" in ran.complaint) == (DATA, True)
    assert send(desk, login, "SELECT email FROM public.users").code == OK


def test_who_may_write_to_our_tables_may_not_by_a_query(desk: Desk, login: str) -> None:
    execute(desk.shell.database, f"ALTER ROLE {login} INHERIT")
    execute(desk.shell.database, f"REVOKE postledger_app FROM {login}; GRANT postledger_app TO {login}")
    ran = send(desk, login, "SELECT postledger.suppress(email, 'bounced', 'x')::text AS email FROM users")
    assert (ran.code, "read-only" in ran.complaint) == (DATA, True)
    assert untouched(desk)


def test_what_it_finds_is_queued(desk: Desk, login: str) -> None:
    query = """
        SELECT email, name, town, paid, date '2026-12-01' AS day, ARRAY[1, 2] AS list, NULL::int AS none, id > 1 AS late
        FROM users ORDER BY id -- with a comment
    """
    ran = send(desk, login, query, letter="<p>{{ town }} {{ paid }}</p>")
    assert (ran.code, ran.document["report"]["accepted"]) == (OK, 2)
    data = desk.sql("SELECT data::text FROM postledger.recipients WHERE email = 'ann@x.example'")
    assert data == (
        '{"day": "2026-12-01", "late": false, "list": [1, 2], "none": null, "paid": "12.50", "town": "Ulm"}'
    )
    desk.verified()


def test_a_semicolon_at_the_end_is_no_second_statement(desk: Desk, login: str) -> None:
    assert send(desk, login, "SELECT email FROM users -- all of them\n;\n").code == OK
    desk.verified()


ROWS = """
SELECT * FROM (VALUES
    ('a', ' Ann@X.Example '), ('b', 'ann@x.example'), ('a', 'other@x.example'), (NULL, 'bob@x.example'),
    ('c', NULL), ('d', 'no address'), ('', 'eve@x.example'), (repeat('k', 201), 'long@x.example')
) AS people (key, email)
"""


def test_each_row_has_an_outcome(desk: Desk, login: str) -> None:
    desk.run("suppress", "eve@x.example")
    report = send(desk, login, ROWS).document["report"]
    assert {name: report[name] for name in ("rows", "accepted", "suppressed", "invalid")} == {
        "rows": 8,
        "accepted": 2,
        "suppressed": 1,
        "invalid": 3,
    }
    assert [(line["line"], line["outcome"], line["reason"].partition(":")[0]) for line in report["lines"]] == [
        (2, "duplicate_address", "this address stands further up"),
        (3, "duplicate_key", "this key stands further up"),
        (5, "invalid", "email"),
        (6, "invalid", "email"),
        (7, "suppressed", "operator"),
        (8, "invalid", "key"),
    ]
    again = send(desk, login, ROWS).document["report"]
    assert again["accepted"] == 0
    desk.verified()


FAULTS = """
SELECT * FROM (VALUES
    (1, 'a@x.example', repeat('n', 998), 'x'), (2, 'b@x.example', repeat('n', 999), 'x'),
    (3, 'c@x.example', E'A\\nBcc: d', 'x'),
    (4, 'd@x.example', U&'A\\2028B', 'x'), (5, 'e@x.example', 'E', repeat('x', 1000000)),
    (6, 'f@x.example', 'F', repeat('x', 1048576)), (7, 'g@xx--y.example', 'G', 'x'), (8, 'h@1.2.3.4', 'H', 'x')
) AS people (n, email, name, text)
"""


def test_what_is_wrong_with_a_row_is_the_same_as_for_enqueue(desk: Desk, login: str) -> None:
    report = send(desk, login, FAULTS).document["report"]
    assert report["accepted"] == 2
    assert [(line["line"], line["reason"].partition(":")[0]) for line in report["lines"]] == [
        (2, "name"),
        (3, "name"),
        (4, "name"),
        (6, "data"),
        (7, "email"),
        (8, "email"),
    ]
    desk.verified()


def test_a_volatile_query_is_run_once(desk: Desk, login: str) -> None:
    """Looking at its columns does not run it, and what is written down is what it found then."""
    query = "SELECT 'user' || (random() * 1e9)::bigint || '@x.example' AS email FROM generate_series(1, 50)"
    document = send(desk, login, query).document
    assert document["report"]["accepted"] == document["audience"] == 50


def test_columns_with_any_name_and_more_than_a_function_takes(desk: Desk, login: str) -> None:
    columns = ", ".join(f'{n} AS "c {n} {{x}} \'"' for n in range(120))
    ran = send(desk, login, f"SELECT email, {columns} FROM users")
    assert ran.document["report"]["accepted"] == 2
    assert desk.sql("SELECT data->>'c 119 {x} ''' FROM postledger.recipients LIMIT 1") == "119"


def test_a_variable_that_no_column_gives_is_found_before_anything_is_written(desk: Desk, login: str) -> None:
    ran = send(desk, login, "SELECT email FROM users", letter="<p>{{ town }}</p>")
    assert ran.code == DATA
    assert "{{ town }}" in ran.complaint
    assert "--query" in ran.complaint
    assert untouched(desk)
    ran = send(desk, login, "SELECT email, name FROM users", "--dry-run", letter="<p>{{ name }}</p>")
    assert ran.document["report"]["accepted"] == 2
    assert untouched(desk)
