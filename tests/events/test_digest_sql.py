"""The database seals a recipient with the same bytes as digest.py."""

import pytest

from postledger.events.digest import recipient_digest

RECIPIENTS = [
    (b"\x00\xff\x80\x01", "käse", "a@b.org", None, "{}"),
    (b"", "", "", "", '{"a": ""}'),
    (None, "42", None, None, None),
    (
        b"\x01",
        "\U0001f600",
        "x@xn--bcher-kva.example",
        "Ā\u00a0\r\n",
        '{"b":1.50,"a":[null,"\\u20ac"], "a":1e3}',
    ),
    (bytes(range(256)), "k" * 70_000, "a@b.org", "n", '{"long": "' + "ä" * 70_000 + '"}'),
]


@pytest.mark.parametrize("recipient", RECIPIENTS, ids=range(len(RECIPIENTS)))
async def test_the_database_has_the_same_digest(conn, recipient):
    await conn.execute("SET search_path = postledger")
    row = await conn.fetchrow(
        "SELECT recipient_digest($1, $2, $3, $4, $5::text::jsonb) AS digest, $5::text::jsonb::text AS stored",
        *recipient,
    )
    assert row["digest"] == recipient_digest(*recipient[:4], row["stored"])
