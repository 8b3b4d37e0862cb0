"""Contacts, lists and suppressions: who wants what, who wants nothing any more, and no address where others read it."""

from typing import Any

from postledger.database import Connection
from postledger.projections.verify import verify

from .conftest import Api

ANN = {"email": "ann@x.example"}


async def new_list(api: Api, name: str = "digest") -> str:
    made = await api.post("/v1/lists", {"name": name})
    assert made.status == 201, made.content
    assert made.headers["Location"] == f"/v1/lists/{made.json['id']}"
    return str(made.json["id"])


async def test_what_is_known_of_a_person_is_the_newest_word(api: Api) -> None:
    first = await api.post("/v1/contacts", {**ANN, "name": "Ann", "data": {"town": "Ulm"}})
    again = await api.post("/v1/contacts", {"email": " ANN@X.example", "data": {"town": "Kiel"}})
    assert (first.status, again.status) == (200, 200)
    assert again.json["id"] == first.json["id"]
    assert (again.json["email"], again.json["name"], again.json["data"]) == ("ann@x.example", "Ann", {"town": "Kiel"})
    assert (again.json["suppressed"], again.json["lists"]) == (None, [])
    assert (await api.get(f"/v1/contacts/{first.json['id']}")).json == again.json
    assert (await api.post("/v1/contacts/lookup", ANN)).json == again.json
    assert (await api.post("/v1/contacts/lookup", {"email": "bob@x.example"})).problem == (404, "not-found")


async def test_lists_count_who_comes_and_goes(api: Api, db: Connection) -> None:
    digest, offers = await new_list(api), await new_list(api, "offers")
    assert (await api.post("/v1/lists", {"name": "digest"})).problem == (409, "conflict")
    for list_id in (digest, offers):
        joined = await api.post(f"/v1/lists/{list_id}/subscribe", {**ANN, "name": "Ann", "data": {"town": "Ulm"}})
        assert joined.json == {"changed": True}
    assert (await api.post(f"/v1/lists/{digest}/subscribe", ANN)).json == {"changed": False}
    assert (await api.post(f"/v1/lists/{digest}/unsubscribe", ANN)).json == {"changed": True}
    shown = (await api.get("/v1/lists")).json["items"]
    assert [(one["name"], one["subscribed"], one["unsubscribed"]) for one in shown] == [
        ("digest", 0, 1),
        ("offers", 1, 0),
    ]
    assert (await api.get(f"/v1/lists/{digest}/contacts")).json == {"items": [], "next": None}
    (ann,) = (await api.get(f"/v1/lists/{offers}/contacts")).json["items"]
    assert (ann["email"], ann["name"], ann["data"]) == ("ann@x.example", "Ann", {"town": "Ulm"})
    contact = (await api.get(f"/v1/contacts/{ann['id']}")).json
    assert [(one["name"], one["subscribed"]) for one in contact["lists"]] == [("digest", False), ("offers", True)]
    sources = await db.fetch(
        "SELECT body->>'source' AS source FROM events WHERE type IN ('Subscribed', 'Unsubscribed')"
    )
    assert {row["source"] for row in sources} == {"api:1"}
    assert (await verify(db, None)).equal


async def test_who_leaves_everything_is_not_subscribed_again_but_after_a_lift(api: Api, db: Connection) -> None:
    digest = await new_list(api)
    await api.post(f"/v1/lists/{digest}/subscribe", ANN)
    assert (await api.post("/v1/contacts/unsubscribe", ANN)).json == {"changed": True}
    assert (await api.post("/v1/contacts/unsubscribe", ANN)).json == {"changed": False}
    refused = await api.post(f"/v1/lists/{digest}/subscribe", ANN)
    assert refused.problem == (409, "conflict")
    assert b"ann@" not in refused.content
    lifted = await api.post("/v1/suppressions/lift", {**ANN, "reason": "asked in the shop"})
    assert lifted.status == 200
    contact = (await api.post("/v1/contacts/lookup", ANN)).json
    assert contact["suppressed"] is None
    assert [one["subscribed"] for one in contact["lists"]] == [False]  # a lift puts nobody on a list again
    assert (await api.post(f"/v1/lists/{digest}/subscribe", ANN)).json == {"changed": True}
    assert (await verify(db, None)).equal


async def test_suppressions_show_no_address(api: Api, db: Connection) -> None:
    added = await api.post("/v1/suppressions", {**ANN, "reason": "asked by phone"})
    assert added.status == 201
    assert set(added.json) == {"address_hash", "contact_id", "reason", "source", "created_at"}
    assert (added.json["reason"], added.json["source"]) == ("asked by phone", "api:1")
    again = await api.post("/v1/suppressions", {**ANN, "reason": "another"})
    assert again.json == added.json
    listed = await api.get("/v1/suppressions")
    assert listed.json == {"items": [added.json], "next": None}
    assert b"ann@" not in listed.content
    assert (await api.post("/v1/suppressions/lookup", ANN)).json == added.json
    assert (await api.post("/v1/suppressions/lookup", {"email": "bob@x.example"})).problem == (404, "not-found")
    hashed = {"address_hash": added.json["address_hash"], "reason": "asked to be written to again"}
    assert (await api.post("/v1/suppressions/lift", hashed)).json == {"address_hash": added.json["address_hash"]}
    assert (await api.post("/v1/suppressions/lift", hashed)).problem == (404, "not-found")
    body = await db.fetchval("SELECT body FROM events WHERE type = 'Unsuppressed'")
    assert body == {"by": "api:1", "reason": "asked to be written to again"}
    assert (await verify(db, None)).equal


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/suppressions", {"email": "ann@x.example", "reason": "ask bob@x.example"}, "reason"),
    ("/v1/suppressions", {"email": "ann"}, "email"),
    ("/v1/suppressions/lift", {"reason": "why not"}, "email"),
    ("/v1/suppressions/lift", {**ANN, "address_hash": "0" * 64, "reason": "why not"}, "email"),
    ("/v1/suppressions/lift", {"address_hash": "xyz", "reason": "why not"}, "address_hash"),
    ("/v1/suppressions/lift", ANN, "reason"),
    ("/v1/contacts", {**ANN, "name": "two\nlines"}, "name"),
    ("/v1/lists", {"name": "  "}, "name"),
]


async def test_what_cannot_be_is_refused_by_field(api: Api) -> None:
    for path, body, field in REFUSED:
        refused = await api.post(path, body)
        assert (refused.problem, refused.json["field"]) == ((422, "invalid"), field), body
        assert refused.json.get("remedy") or field == "reason"
        assert b"ann@" not in refused.content
        assert b"bob@" not in refused.content


async def test_pages_are_walked_to_the_end_and_hold_everything_once(api: Api) -> None:
    for resource in ("contacts", "suppressions", "templates", "senders"):
        await walk(api, resource)


async def walk(api: Api, resource: str) -> None:
    for n in range(7):
        body = {
            "contacts": {"email": f"p{n}@x.example"},
            "suppressions": {"email": f"p{n}@x.example"},
            "templates": {"subject": f"letter {n}", "html": "<p>x</p>"},
            "senders": {"name": f"way {n}", "url": "null://"},
        }[resource]
        assert (await api.post(f"/v1/{resource}", body)).status in (200, 201)
    key = {"contacts": "id", "suppressions": "address_hash", "templates": "hash", "senders": "id"}[resource]
    found: list[str] = []
    after = ""
    while True:
        page = (await api.get(f"/v1/{resource}?limit=3{after}")).json
        assert len(page["items"]) <= 3
        found += [one[key] for one in page["items"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert len(found) == len(set(found)) >= 7
    assert (await api.get(f"/v1/{resource}?after=nowhere")).problem == (422, "invalid")
    assert (await api.get(f"/v1/{resource}?limit=0")).problem == (422, "invalid")
    assert (await api.get(f"/v1/{resource}?before=1")).problem == (422, "invalid")
