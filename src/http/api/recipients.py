"""The recipients of a campaign: added in any number at once, listed in pages or as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable

import structlog
from aiohttp import web
from attrs import frozen

from ...database import Connection
from ...errors import PostledgerError
from ...ledger import adding, campaigns, pages, writing
from ...ledger.audience import staging
from ...ledger.audience.csv_reader import read_csv
from ...ledger.audience.json_reader import read_list, read_ndjson
from ...ledger.audience.report import Report
from ...ledger.audience.rows import BadRow, Row
from ...ledger.audience.staging import Staged
from ...ledger.documents import DeliveryStatus, Recipient, recipient_of
from ...ledger.log_documents import ImportReport
from ..effects import Asked, asked_by, recall, remember
from ..keys import LISTEN, POOL, SEALER
from ..paging import Paging
from ..problems import AGAIN_IN, Problem
from ..route import Route
from ..spool import Spooled, spooled
from ..streaming import NDJSON, stream_out
from ..wire import answer, dump, read_id, read_query

log = structlog.get_logger(__name__)

LIST_LIMIT = 16 << 20
"""Bytes of a JSON list, which has to be in memory as a whole."""

UPLOADS = 8
"""Bodies that come in at the same time."""

AT_ONCE = 2
"""Imports that are written at the same time: each has a connection and a thread."""

PAGE = 1_000

_FORMS = {
    "application/json": "list",
    NDJSON: "ndjson",
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "text/csv": "csv",
}
CONSUMES = ("application/json", NDJSON, "text/csv")


class Uploads:
    """How many are under way."""

    def __init__(self) -> None:
        self.coming = 0
        self.turn = asyncio.Semaphore(AT_ONCE)


UPLOADING: web.AppKey[Uploads] = web.AppKey("uploading", Uploads)


@frozen
class Which(Paging):
    """Which recipients."""

    status: DeliveryStatus | None = None
    """Those who stand so."""


@frozen
class Recipients:
    """A page of recipients, in the order in which they came; `next` is null on the last."""

    items: tuple[Recipient, ...]
    next: str | None


async def list_(request: web.Request) -> web.StreamResponse:
    """Who is in a campaign, and how each mail stands; all of them, a line each, with Accept: application/x-ndjson."""
    campaign_id, asked = read_id(request), read_query(request, Which)
    after = str(asked.after_id())
    if NDJSON in request.headers.get("Accept", ""):
        return await stream_out(request, _lines(request, campaign_id, asked.status, after), NDJSON)
    async with request.app[POOL].connection() as conn:
        await campaigns.check_there(conn, campaign_id)
        page = await pages.recipients(conn, campaign_id, status=asked.status, after=after, limit=asked.limit)
    return answer(Recipients(tuple(map(recipient_of, page.items)), page.next))


async def _lines(
    request: web.Request, campaign_id: int, status: str | None, after: str | None
) -> AsyncGenerator[bytes, None]:
    """A page at a time, each in a snapshot of its own: a slow reader holds no connection, and no dead rows."""
    pool = request.app[POOL]
    async with pool.connection() as conn:
        await campaigns.check_there(conn, campaign_id)
    while after is not None:
        async with pool.connection() as conn:
            page = await pages.recipients(conn, campaign_id, status=status, after=after, limit=PAGE)
        after = page.next
        yield b"".join(dump(recipient_of(row)) + b"\n" for row in page.items)


async def add(request: web.Request) -> web.StreamResponse:
    """Adds people, all that can be written to or, where the request is broken off, nobody."""
    campaign_id, form = read_id(request), _form(request)
    async with request.app[POOL].connection() as conn:
        await adding.check_open(conn, campaign_id)
    uploads = request.app[UPLOADING]
    if uploads.coming >= UPLOADS:
        raise Problem(
            "too-many-requests",
            f"{UPLOADS} uploads are under way",
            remedy="wait for one to end",
            headers={"Retry-After": AGAIN_IN},
        )
    uploads.coming += 1
    try:
        async with spooled(request) as body:
            asked = await asked_by(request, body.digest)
            if (given := await _given(request, asked)) is not None:
                return given
            async with uploads.turn:
                return await _import(request, campaign_id, form, body, asked)
    finally:
        uploads.coming -= 1


def _form(request: web.Request) -> str:
    form = _FORMS.get(request.content_type)
    if form is None:
        raise Problem(
            "unsupported-media-type",
            f"the body is {request.content_type}",
            remedy=f"send Content-Type: {', '.join(CONSUMES)}",
        )
    return form


async def _given(request: web.Request, asked: Asked | None) -> web.Response | None:
    """The answer that the same request was given before, if it was."""
    if asked is None:
        return None
    async with request.app[POOL].transaction() as conn:
        return await recall(conn, asked)


async def _import(
    request: web.Request, campaign_id: int, form: str, body: Spooled, asked: Asked | None
) -> web.Response:
    unit = "item" if form == "list" else "line"
    rows = await asyncio.to_thread(_rows, form, body)
    # A session of its own: it holds what is staged, and takes longer than others may wait for one of the pool.
    async with request.app[LISTEN].connection(label="import") as conn:
        try:
            staged = await adding.stage(conn, campaign_id, rows, source=f"api:{form}", unit=unit)
        except adding.NobodyError as error:
            raise Problem(
                "invalid", str(error), remedy="mend the lines that the report names", report=error.report.to_json()
            ) from error
        try:
            response, report = await _commit(conn, campaign_id, staged, unit, asked)
        except Exception:
            if not conn.is_closed():
                await staging.discard(conn, staged.import_id)
            raise
        finally:
            request.app[SEALER].note()
    if report is not None and report.accepted > writing.MANY:
        await _renew_statistics(request)
    return response


def _rows(form: str, body: Spooled) -> Iterable[Row | BadRow]:
    """Blocks: a list is read as a whole, of a CSV file its encoding depends on all bytes."""
    match form:
        case "csv":
            return read_csv(body.file, name="the body")
        case "ndjson":
            return read_ndjson(body.file)
        case _:
            if body.size > LIST_LIMIT:
                raise Problem(
                    "too-large",
                    f"a JSON list of more than {LIST_LIMIT:,} bytes",
                    remedy=f"send it as {NDJSON}, an object on each line",
                )
            return read_list(body.file.read(), "the body")


async def _commit(
    conn: Connection, campaign_id: int, staged: Staged, unit: str, asked: Asked | None
) -> tuple[web.Response, Report | None]:
    """One transaction: the people, what is told about them, and the Idempotency-Key."""
    async with conn.transaction():
        if asked is not None and (given := await recall(conn, asked)) is not None:
            await staging.discard(conn, staged.import_id)
            return given, None
        report = await adding.add(conn, campaign_id, staged, unit=unit)
        response = answer(report.to_json())
        if asked is not None:
            await remember(conn, asked, response)
    return response, report


async def _renew_statistics(request: web.Request) -> None:
    """As the login itself, which may own the tables; the people are in whether that works or not."""
    try:
        async with request.app[LISTEN].connection(role=None, label="analyze") as conn:
            await writing.analyze(conn)
    except PostledgerError as error:
        log.warning("not_analyzed", reason=str(error))


async def uploading(app: web.Application) -> AsyncIterator[None]:
    """What uploads share."""
    app[UPLOADING] = Uploads()
    yield


ROUTES = (
    Route(
        "POST",
        "/v1/campaigns/{id}/recipients",
        add,
        "send",
        "Add people to a campaign",
        consumes=CONSUMES,
        answer=ImportReport,
        idempotent=True,
        problems=("conflict", "invalid", "too-large", "too-many-requests", "unsupported-media-type"),
    ),
    Route(
        "GET",
        "/v1/campaigns/{id}/recipients",
        list_,
        "read",
        "Who is in a campaign",
        query=Which,
        answer=Recipients,
        also=("send",),
    ),
)
