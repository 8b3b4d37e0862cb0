"""Templates: letters by the hash of what they say, which never change."""

from __future__ import annotations

from datetime import datetime

from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...ledger import limits, templates
from ...ledger.campaigns import Source
from ...messages.checklist import Draft, check
from ..effects import effect
from ..keys import CONFIG, POOL
from ..paging import Paging
from ..problems import Problem
from ..route import Route
from ..wire import answer, read_body, read_query

LETTER_LIMIT = 2_000_000
"""Characters: twenty times what Gmail shows."""


@frozen
class NewTemplate:
    """A letter: subject and HTML, text, or both, with the variables of MiniJinja."""

    subject: str = limits.text(2000, example="Hello {{ name }}")
    html: str | None = limits.text(LETTER_LIMIT, lines=True, example="<p>Dear {{ name }}</p>", default=None)
    text: str | None = limits.text(LETTER_LIMIT, lines=True, default=None)
    """Made of the HTML where none is given."""


@frozen
class Template:
    """A letter as its author wrote it."""

    hash: str
    """sha256 of what it says."""
    subject: str
    html: str | None
    text: str | None
    created_at: datetime


@frozen
class Templates:
    """A page of letters."""

    items: list[Template]
    next: str | None


async def list_(request: web.Request) -> web.Response:
    """In the order of the hashes."""
    asked = read_query(request, Paging)
    async with request.app[POOL].connection() as conn:
        page = await templates.page(conn, after=asked.after_hash(), limit=asked.limit)
    return answer(Templates([_shown(one) for one in page.items], page.next))


async def create(request: web.Request) -> web.Response:
    """Read as a campaign would read it: what cannot be rendered is refused, with field and line. The same is one."""
    asked = await read_body(request, NewTemplate)
    if asked.html is None and asked.text is None:
        raise Problem("invalid", "html: neither html nor text is given", field="html", remedy="give one of them")
    check_letter(asked, request.app[CONFIG].url)
    source = Source(asked.subject, asked.html, asked.text)

    async def act(conn: Connection) -> web.Response:
        await templates.keep(conn, source)
        kept = await templates.read(conn, source.hash)
        return answer(_shown(kept), 201, headers={"Location": f"/v1/templates/{kept.hash}"})

    return await effect(request, act)


async def show(request: web.Request) -> web.Response:
    """By its hash."""
    async with request.app[POOL].connection() as conn:
        return answer(_shown(await templates.read(conn, request.match_info["hash"])))


def check_letter(letter: NewTemplate, base_url: str | None) -> None:
    """Raises Problem for what could not be rendered; who it is from and how one leaves is the campaign's affair."""
    draft = Draft(letter.subject, "somebody@example.com", letter.html or "", letter.text)
    for problem in check(draft, kind="standing", base_url=base_url or "https://example.com"):
        if problem.severity == "error":
            raise Problem("invalid", f"{problem.field}: {problem.reason}", field=problem.field, remedy=problem.remedy)


def _shown(one: templates.Template) -> Template:
    return Template(one.hash, one.subject, one.html, one.text, one.created_at)


ROUTES = (
    Route("GET", "/v1/templates", list_, "read", "All letters", query=Paging, answer=Templates, also=("send",)),
    Route(
        *("POST", "/v1/templates", create, "send", "Keep a letter"),
        body=NewTemplate,
        answer=Template,
        status=201,
        idempotent=True,
    ),
    Route("GET", "/v1/templates/{hash}", show, "read", "One letter", answer=Template, also=("send",)),
)
