"""The API as methods: typed values in, typed values out, problems as exceptions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from ..http.api.actions import Pause, Retry, Start
from ..http.api.campaigns import Campaigns
from ..http.api.checklists import Checklist
from ..http.api.drafts import Changes, NewCampaign
from ..http.api.messages import Accepted, NewMessage
from ..http.api.recipients import Recipients
from ..ledger.documents import Campaign, Recipient
from ..ledger.log_documents import AsOf, Delivery, EventPage, History, ImportReport, Step, Verification
from ..ledger.public import Id, read_answer
from .directory import Directory
from .errors import Problem, error_of
from .feed import Feed
from .transport import Call, Transport, json_call, upload_call

NDJSON = "application/x-ndjson"

LINES = 2_000


class Client(Directory):
    """A caller of the service at `url` with an API key; a context manager.

    What may be repeated without being done twice is repeated: reading, and what carries an Idempotency-Key, as every
    POST does.
    Raises ApiError (by its kind: NotFoundError, ConflictError, ...) for what the service refuses, UnreachableError
    where there was no answer.
    """

    def __init__(self, url: str, key: str, *, timeout: float = 60.0) -> None:
        self.transport = Transport(url, key, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends its connections."""
        await self.transport.close()

    # Campaigns.

    async def create_campaign(self, new: NewCampaign) -> Campaign:
        """A draft, or scheduled where it says when it begins."""
        return await self.transport.ask(json_call("POST", "/v1/campaigns", new), Campaign)

    async def campaign(self, campaign_id: int) -> Campaign:
        """How a campaign stands."""
        return await self.transport.ask(json_call("GET", f"/v1/campaigns/{campaign_id}"), Campaign)

    async def campaigns(self, *, after: str | None = None, limit: int | None = None) -> Campaigns:
        """A page of campaigns, newest first."""
        return await self.transport.ask(json_call("GET", "/v1/campaigns", after=after, limit=limit), Campaigns)

    async def change_campaign(self, campaign_id: int, version: int, changes: Changes | Mapping[str, Any]) -> Campaign:
        """Changes a draft that is at `version`. What is to become null is said in a mapping, by its public name."""
        return await self.transport.ask(
            json_call("PATCH", f"/v1/campaigns/{campaign_id}", changes, version=version), Campaign
        )

    async def start(
        self, campaign_id: int, *, expected_audience: int | None = None, version: int | None = None
    ) -> Campaign:
        """Begins now."""
        return await self._act(campaign_id, "start", Start(expected_audience), version)

    async def schedule(
        self, campaign_id: int, at: datetime | None, *, expected_audience: int | None = None, version: int | None = None
    ) -> Campaign:
        """Begins by itself then; None: no more."""
        return await self._act(campaign_id, "schedule", _schedule(at, expected_audience), version)

    async def pause(self, campaign_id: int, *, until: datetime | None = None, version: int | None = None) -> Campaign:
        """Stops it until then, or until somebody resumes it."""
        return await self._act(campaign_id, "pause", Pause(until), version)

    async def resume(self, campaign_id: int, *, version: int | None = None) -> Campaign:
        """Goes on."""
        return await self._act(campaign_id, "resume", {}, version)

    async def cancel(self, campaign_id: int, *, version: int | None = None) -> Campaign:
        """Ends it for ever."""
        return await self._act(campaign_id, "cancel", {}, version)

    async def retry(
        self, campaign_id: int, deliveries: Iterable[int] | None = None, *, version: int | None = None
    ) -> Campaign:
        """Sends to failed and unknown ones once more; None: all of them."""
        chosen = None if deliveries is None else tuple(map(Id, deliveries))
        return await self._act(campaign_id, "retry", Retry(chosen), version)

    async def checklist(self, campaign_id: int) -> Checklist:
        """What keeps it from being sent, and what may be wrong with it."""
        return await self.transport.ask(json_call("GET", f"/v1/campaigns/{campaign_id}/checklist"), Checklist)

    # Recipients and deliveries.

    async def add_recipients(self, campaign_id: int, people: Iterable[Mapping[str, Any]]) -> ImportReport:
        """People as {email, key, name, ...}, any number of them: `people` is read as it is sent.

        A list may be sent once more where the connection breaks; another iterable is gone then.
        """
        again = isinstance(people, list | tuple)
        call = upload_call(_recipients(campaign_id), lambda: _lines(people), NDJSON, repeatable=again)
        return await self.transport.ask(call, ImportReport)

    async def upload_recipients(self, campaign_id: int, file: Path, content_type: str = "text/csv") -> ImportReport:
        """The people of a file: text/csv, application/x-ndjson or application/json."""
        call = upload_call(_recipients(campaign_id), lambda: file.open("rb"), content_type, repeatable=True)
        return await self.transport.ask(call, ImportReport)

    async def recipients(
        self, campaign_id: int, *, status: str | None = None, after: str | None = None, limit: int | None = None
    ) -> Recipients:
        """A page of recipients, in the order in which they came."""
        call = json_call("GET", _recipients(campaign_id), status=status, after=after, limit=limit)
        return await self.transport.ask(call, Recipients)

    async def all_recipients(self, campaign_id: int, *, status: str | None = None) -> AsyncIterator[Recipient]:
        """All of them, in one answer that is read as it comes."""
        query = {} if status is None else {"status": status}
        call = Call("GET", _recipients(campaign_id), query, {"Accept": NDJSON})
        async with self.transport.open(call) as response:
            async for line in response.content:
                yield read_answer(orjson.loads(line), Recipient)

    async def delivery(self, delivery_id: int) -> Delivery:
        """How a delivery stands."""
        return await self.transport.ask(json_call("GET", f"/v1/deliveries/{delivery_id}"), Delivery)

    async def history(self, delivery_id: int) -> History:
        """Everything that happened to it."""
        return await self.transport.ask(json_call("GET", f"/v1/deliveries/{delivery_id}/history"), History)

    async def send_message(self, message: NewMessage) -> Accepted:
        """One mail to one person, through a standing campaign."""
        return await self.transport.ask(json_call("POST", "/v1/messages", message), Accepted)

    # The log.

    async def events(
        self, *, after: str | None = None, limit: int | None = None, campaign: int | None = None
    ) -> EventPage:
        """Events of the sealed log behind a checkpoint."""
        call = json_call("GET", "/v1/events", after=after, limit=limit, campaign=campaign)
        return await self.transport.ask(call, EventPage)

    def feed(self, *, campaign: int | None = None, only: str | None = None, after: str | None = None) -> Feed:
        """The log and the progress of campaigns, live: to be iterated over. `after`: another feed's `last_id`."""
        return Feed(self.transport, campaign, only, after)

    async def replay(self, campaign_id: int) -> AsyncIterator[Step]:
        """Every event of a campaign with the state after it. Raises ConflictError where one cannot stand."""
        async with self.transport.open(Call("GET", f"/v1/audit/campaigns/{campaign_id}/replay")) as response:
            async for line in response.content:
                document = orjson.loads(line)
                if "problem" in document:
                    raise error_of(Problem.of(document["problem"]["status"], document["problem"]), None)
                yield read_answer(document, Step)

    async def as_of(self, campaign_id: int, at: datetime) -> AsOf:
        """How a campaign stood at a time."""
        call = json_call("GET", f"/v1/audit/campaigns/{campaign_id}/as-of", at=at.isoformat())
        return await self.transport.ask(call, AsOf)

    async def verify(self, campaign_id: int | None = None) -> Verification:
        """Whether a campaign's tables, or everything, are what the log says."""
        path = "/v1/audit/verify" if campaign_id is None else f"/v1/audit/campaigns/{campaign_id}/verify"
        return await self.transport.ask(json_call("GET", path), Verification)

    async def _act(self, campaign_id: int, action: str, body: Any, version: int | None) -> Campaign:
        call = json_call("POST", f"/v1/campaigns/{campaign_id}/{action}", body, version=version)
        return await self.transport.ask(call, Campaign)


def _recipients(campaign_id: int) -> str:
    return f"/v1/campaigns/{campaign_id}/recipients"


def _schedule(at: datetime | None, expected_audience: int | None) -> dict[str, Any]:
    """Not the class: what it leaves out of `missed` stays as it was, and null is something else."""
    said = {} if expected_audience is None else {"expected_audience": expected_audience}
    return {"at": at, **said}


async def _lines(people: Iterable[Mapping[str, Any]]) -> AsyncIterator[bytes]:
    """As NDJSON, some thousand people at a time."""
    lines: list[bytes] = []
    for person in people:
        lines.append(orjson.dumps(dict(person), option=orjson.OPT_APPEND_NEWLINE))
        if len(lines) == LINES:
            yield b"".join(lines)
            lines.clear()
    yield b"".join(lines)
