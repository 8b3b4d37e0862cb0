"""The description of the API: valid, whole, and one with the route table."""

import re
from html.parser import HTMLParser

from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

from postledger.http.openapi.document import document, path_of
from postledger.http.problems import KINDS
from postledger.http.routes import ROUTES

from .conftest import Api

DOCUMENT = document(ROUTES, "1.0.0")
OPERATIONS = {
    (method.upper(), path): operation
    for path, place in DOCUMENT["paths"].items()
    for method, operation in place.items()
}


def test_it_is_valid_by_the_meta_schema() -> None:
    assert [str(error) for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_route_of_the_table_is_in_it_and_nothing_else() -> None:
    assert set(OPERATIONS) == {(route.method, path_of(route)) for route in ROUTES}
    assert len(OPERATIONS) == len(ROUTES)


def test_operations_have_names_of_their_own_and_words() -> None:
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in names)
    assert all(operation["summary"] for operation in OPERATIONS.values())


def test_security_says_what_the_table_says() -> None:
    for route in ROUTES:
        scopes = [one["key"] for one in OPERATIONS[route.method, path_of(route)]["security"]]
        if route.scope is None:
            assert scopes == []
        else:
            assert scopes == [[one] for one in dict.fromkeys((route.scope, *route.also, "admin"))]


def test_headers_stand_where_they_are_read() -> None:
    for route in ROUTES:
        operation = OPERATIONS[route.method, path_of(route)]
        headers = {one["name"]: one["required"] for one in operation.get("parameters", ()) if one["in"] == "header"}
        expected = {"Idempotency-Key": False} if route.idempotent else {}
        if route.if_match is not None:
            expected["If-Match"] = route.if_match == "required"
        assert headers == expected, route.path


def test_every_json_answer_has_a_class() -> None:
    nameless = [
        f"{one.method} {one.path}"
        for one in ROUTES
        if one.produces == "application/json"
        and one.answer is None
        and one.status not in (204, 302)
        and one.method != "HEAD"
    ]
    assert nameless == ["GET /openapi.json"]


def test_every_problem_is_one_of_the_known_kinds() -> None:
    for route in ROUTES:
        answers = OPERATIONS[route.method, path_of(route)]["responses"]
        assert {str(KINDS[name].status) for name in route.problems} <= set(answers)


def test_the_example_of_a_body_is_one_that_is_taken() -> None:
    import orjson

    from postledger.ledger import public

    for route in ROUTES:
        if route.body is not None:
            content = OPERATIONS[route.method, path_of(route)]["requestBody"]["content"]["application/json"]
            public.read(orjson.loads(orjson.dumps(content["example"])), route.body)


class _Outside(HTMLParser):
    """What a page would load, run or lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.targets: list[str] = []
        self.places: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "link", "img", "iframe", "object", "embed", "form") or any(
            n.startswith("on") for n in given
        ):
            self.found.append(tag)
        self.targets += [given["href"] or ""] if "href" in given else []
        self.places += [given["id"] or ""] if "id" in given else []


async def test_both_are_served_to_everybody(api: Api) -> None:
    shown = await api.get("/openapi.json", key=None)
    assert (shown.status, shown.headers["Content-Type"]) == (200, "application/json")
    assert shown.json["paths"] == DOCUMENT["paths"]
    page = await api.get("/docs", key=None)
    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    looked = _Outside()
    looked.feed(page.content.decode())
    assert looked.found == []
    assert {target for target in looked.targets if not target.startswith("#")} == {"/openapi.json"}
    assert {target[1:] for target in looked.targets if target.startswith("#")} <= set(looked.places)
    for route in ROUTES:
        assert path_of(route) in page.content.decode()


async def test_the_table_is_what_is_served(api: Api) -> None:
    """No path that the table does not know: nothing is served without a scope or a description."""
    served = {
        (route.method, route.resource.canonical)
        for route in api.app.router.routes()
        if isinstance(route, web.ResourceRoute) and route.resource is not None
    }
    assert served == {(route.method, path_of(route)) for route in ROUTES}
