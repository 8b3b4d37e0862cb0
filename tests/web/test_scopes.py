"""Every route against every scope: what opens it is written here once more, by hand."""

from __future__ import annotations

import re

import aiohttp

from postledger.http.openapi.document import path_of
from postledger.http.routes import ROUTES, Route
from postledger.ledger import access
from tests.eventually import eventually
from tests.web.conftest import Api

EVERYBODY = "everybody"

# A route that is added has no line here, and the test fails until somebody has thought about who may call it.
# `admin` opens everything.
OPENED_BY = {
    "GET /v1/campaigns": "read send",
    "POST /v1/campaigns": "send",
    "GET /v1/campaigns/{id}": "read send",
    "PATCH /v1/campaigns/{id}": "send",
    "POST /v1/campaigns/{id}/schedule": "send",
    "POST /v1/campaigns/{id}/start": "send",
    "POST /v1/campaigns/{id}/pause": "send",
    "POST /v1/campaigns/{id}/resume": "send",
    "POST /v1/campaigns/{id}/cancel": "send",
    "POST /v1/campaigns/{id}/retry": "send",
    "GET /v1/campaigns/{id}/checklist": "read send",
    "GET /v1/campaigns/{id}/preview": "read send",
    "POST /v1/campaigns/{id}/preview": "read send",
    "GET /v1/campaigns/{id}/preview/html": "read send",
    "GET /v1/campaigns/{id}/preview/mime": "read send",
    "POST /v1/campaigns/{id}/test": "send",
    "POST /v1/campaigns/{id}/recipients": "send",
    "GET /v1/campaigns/{id}/recipients": "read send",
    "GET /v1/deliveries/{id}": "read send audit",
    "GET /v1/deliveries/{id}/history": "read audit",
    "GET /v1/events": "read audit",
    "GET /v1/events/stream": "read audit",
    "GET /v1/audit/campaigns/{id}/replay": "audit",
    "GET /v1/audit/campaigns/{id}/as-of": "audit",
    "GET /v1/audit/campaigns/{id}/verify": "audit",
    "GET /v1/audit/verify": "audit",
    "POST /v1/audit/history": "audit",
    "POST /v1/messages": "send",
    "GET /v1/contacts": "read",
    "POST /v1/contacts": "send",
    "POST /v1/contacts/lookup": "read",
    "POST /v1/contacts/unsubscribe": "send",
    "GET /v1/contacts/{id}": "read",
    "GET /v1/lists": "read",
    "POST /v1/lists": "send",
    "GET /v1/lists/{id}": "read",
    "GET /v1/lists/{id}/contacts": "read",
    "POST /v1/lists/{id}/subscribe": "send",
    "POST /v1/lists/{id}/unsubscribe": "send",
    "GET /v1/suppressions": "read audit",
    "POST /v1/suppressions": "send",
    "POST /v1/suppressions/lookup": "read audit send",
    "POST /v1/suppressions/lift": "admin",
    "GET /v1/senders": "read send",
    "POST /v1/senders": "admin",
    "GET /v1/senders/{id}": "read send",
    "PATCH /v1/senders/{id}": "admin",
    "GET /v1/templates": "read send",
    "POST /v1/templates": "send",
    "GET /v1/templates/{hash}": "read send",
    "GET /u/{token}": EVERYBODY,
    "HEAD /u/{token}": EVERYBODY,
    "POST /u/{token}": EVERYBODY,
    "GET /o/{token}": EVERYBODY,
    "HEAD /o/{token}": EVERYBODY,
    "GET /c/{token}/{target}": EVERYBODY,
    "HEAD /c/{token}/{target}": EVERYBODY,
    "POST /webhooks/{provider}": EVERYBODY,
    "GET /": EVERYBODY,
    "GET /healthz": EVERYBODY,
    "GET /readyz": EVERYBODY,
    "GET /metrics": EVERYBODY,
    "GET /openapi.json": EVERYBODY,
    "GET /docs": EVERYBODY,
}


def called(route: Route) -> str:
    return f"{route.method} {path_of(route)}"


def test_every_route_has_its_line_and_no_line_is_left_over():
    assert sorted(map(called, ROUTES)) == sorted(OPENED_BY)


async def test_each_route_is_opened_by_its_scopes_and_by_no_other(api: Api):
    keys = {scope: await api.new_key(scope) for scope in access.SCOPES}
    for route in ROUTES:
        opening = OPENED_BY[called(route)]
        expected = set(access.SCOPES) if opening == EVERYBODY else {*opening.split(), "admin"}
        let_in = {scope for scope, key in keys.items() if await status(api, route, key) not in (401, 403)}
        assert let_in == expected, called(route)
        anybody = await status(api, route, None)
        if opening == EVERYBODY:
            assert anybody not in (401, 403) or route.path.startswith("/webhooks"), called(
                route
            )  # a signature is asked
        else:
            assert anybody == 401, called(route)
            assert await status(api, route, "plk_1_" + "A" * 43) == 401, called(route)


async def status(api: Api, route: Route, key: str | None) -> int:
    """Of a call that may be refused for any other reason and changes nothing: nobody has its ids, its body is none."""
    path = re.sub(r"\{\w+\}", "999999", path_of(route))
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    data = b"{" if route.method in ("POST", "PATCH") else None
    if data is not None:
        headers["Content-Type"] = "application/json"
    async with api.session.request(route.method, f"{api.url}{path}", headers=headers, data=data) as answer:
        assert answer.status < 500, called(route)
        return answer.status  # a stream is not read


async def test_several_scopes_open_what_each_of_them_does(api: Api):
    key = await api.new_key("audit", "send")
    assert (await api.get("/v1/events", key=key)).status == 200
    assert (await api.get("/v1/campaigns", key=key)).status == 200
    refused = await api.get("/v1/contacts", key=key)
    assert refused.problem == (403, "forbidden")
    assert "read" in refused.json["detail"]


async def test_a_key_is_shown_as_bearer_and_in_no_other_way(api: Api):
    async def ask(**headers: str) -> tuple[int, str]:
        async with api.session.get(f"{api.url}/v1/campaigns", headers=headers) as answer:
            return answer.status, answer.headers.get("WWW-Authenticate", "")

    assert await ask(Authorization=f"bearer {api.key}") == (200, "")
    number = api.key.split("_")[1]
    for shown in (api.key, f"Basic {api.key}", "Bearer", "Bearer ", f"Bearer {api.key}x", f"Bearer {api.key[:-1]}"):
        refused, challenge = await ask(Authorization=shown)
        assert (refused, challenge.partition(" ")[0]) == (401, "Bearer"), shown
    for shown in (f"plk_{number}_", f"plk_{number}", f"plk__{'a' * 43}", f"plk_{'9' * 30}_a", "plk_x_y", "\udcff"):
        refused, _ = await ask(Authorization=f"Bearer {shown}") if shown.isascii() else (401, "")
        assert refused == 401, shown
    async with api.session.get(f"{api.url}/v1/campaigns?key={api.key}") as answer:
        assert answer.status == 401


async def test_a_key_that_is_revoked_opens_nothing_soon_after(api: Api):
    key = await api.new_key("read")
    assert (await api.get("/v1/campaigns", key=key)).status == 200
    async with api.database.connection() as conn:
        assert await access.revoke(conn, int(key.split("_")[1]))

    async def closed() -> None:
        assert (await api.get("/v1/campaigns", key=key)).status == 401

    await eventually(closed, within=10)
    assert (await api.get("/v1/campaigns")).status == 200  # another one


async def test_a_key_is_compared_by_its_hash_in_constant_time(api: Api, monkeypatch):
    """The comparison is hmac's, over whole digests, also where there is no such key."""
    compared: list[tuple[int, int]] = []
    real = access.hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return real(one, other)

    monkeypatch.setattr(access.hmac, "compare_digest", watched)
    for key in (await api.new_key("read"), "plk_1_x", "plk_4711_x"):
        await api.get("/v1/campaigns", key=key)
    assert compared == [(32, 32)] * 3


async def test_what_is_no_path_of_ours_asks_for_no_key(api: Api):
    assert (await api.get("/v1/nothing", key=None)).problem == (404, "not-found")
    assert (await api.call("DELETE", "/v1/campaigns", key=None)).problem == (405, "method-not-allowed")
    with_query = aiohttp.ClientTimeout(total=5)
    async with api.session.get(f"{api.url}/v1/campaigns/1?x=1", timeout=with_query) as answer:
        assert answer.status == 401
