"""Keys of the API on the command line: shown once, kept as hashes, in the log."""

import hashlib
import json

from postledger.ledger.access import PREFIX
from tests.cli.conftest import Desk


def test_keys_are_made_listed_and_withdrawn(desk: Desk) -> None:
    made = desk.run("keys", "create", "--scope", "read", "--scope", "send,read", "--name", "shop", "--json").document
    assert (made["id"], made["scopes"], made["name"]) == ("1", ["send", "read"], "shop")
    assert made["key"].startswith(f"{PREFIX}_1_")
    plain = desk.run("keys", "create", "--scope", "admin")
    assert plain.out.startswith(f"{PREFIX}_2_")
    assert plain.out.count("\n") == 1  # $(postledger keys create ...) is the key

    listed = desk.run("keys", "list", "--json").document
    assert [(one["id"], one["scopes"], one["revoked_at"]) for one in listed["items"]] == [
        ("1", ["send", "read"], None),
        ("2", ["admin"], None),
    ]
    gone = desk.run("keys", "revoke", "1", "--json").document
    assert (gone["id"], gone["revoked_at"] is None) == ("1", False)
    again = desk.run("keys", "revoke", "1", "--json").document
    assert again == gone
    assert desk.run("keys", "revoke", "77").code == 65
    assert "shop" in desk.run("keys", "list").out

    for shown in (listed, gone, again):
        assert made["key"].rpartition("_")[2] not in json.dumps(shown)
    events = desk.sql(
        "SELECT jsonb_agg(jsonb_build_object('type', type, 'body', body) ORDER BY version) FROM postledger.events "
        "WHERE campaign_id = 0 AND delivery_id = 0 AND type LIKE 'Key%'"
    )
    assert json.loads(events) == [
        {"type": "KeyCreated", "body": {"key": "1", "scopes": ["send", "read"]}},
        {"type": "KeyCreated", "body": {"key": "2", "scopes": ["admin"]}},
        {"type": "KeyRevoked", "body": {"key": "1"}},
    ]
    unsealed = (
        "SELECT count(*) FROM postledger.events e "
        "WHERE NOT EXISTS (SELECT FROM postledger.blocks b WHERE b.positions @> e.position)"
    )
    assert desk.sql(unsealed) == 0


def test_of_a_key_only_its_hash_is_kept(desk: Desk) -> None:
    key = desk.run("keys", "create", "--scope", "send", "--json").document["key"]
    secret = key.split("_", 2)[2]
    assert len(secret) == 43  # 256 bits
    hashed = hashlib.sha256(secret.encode()).hexdigest()
    assert desk.sql("SELECT encode(hash, 'hex') FROM postledger.api_keys") == hashed
    tables = desk.sql(
        "SELECT array_agg(relname::text) FROM pg_class "
        "WHERE relnamespace = 'postledger'::regnamespace AND relkind = 'r'"
    )
    rows = [desk.sql(f"SELECT string_agg(t::text, '') FROM postledger.{table} t") or "" for table in tables]
    assert any(hashed in row for row in rows)  # this is where it would be
    assert not any(secret in row for row in rows)
