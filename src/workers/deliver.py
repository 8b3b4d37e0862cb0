"""The way of one delivery from its claim to its recorded outcome."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import structlog

from ..events.text import scrub
from ..ledger.queue import Delivery, Outcome
from ..messages.mime import Composed, RenderError
from . import meters
from .decide import QUOTA_WAIT, RATE_LIMIT_WAIT, Decision, Try, decide
from .jobs import Job, Jobs, Pause
from .lanes import Lane
from .permits import Permits
from .providers.base import BatchProvider, Envelope, NotBegun, Withheld
from .replies import Reply, Verdict, classify
from .settler import Settler

log = structlog.get_logger(__name__)

NOTHING = timedelta()

_ENDINGS = frozenset({"Sent", "Failed", "OutcomeUnknown"})
"""What counts as an outcome when failures are weighed: not what is tried again, nor who was skipped."""

REPLY_LIMIT = 4096
"""Bytes that the table `replies` takes."""


class Deliverer:
    """Sends what was claimed. `pause` pauses a campaign that cannot go on.

    Nothing here is recorded twice or left out: whatever happens to a send, there is an outcome that says what became of
    it. From the provider's answer to the settler's hands nothing is awaited, so no cancellation comes between them.
    """

    def __init__(self, jobs: Jobs, permits: Permits, settler: Settler, *, pause: Pause) -> None:
        self.jobs = jobs
        self.permits = permits
        self.settler = settler
        self.pause = pause
        self.tasks: set[asyncio.Task[None]] = set()
        self._pausing: set[int] = set()

    def hand_over(self, rows: Sequence[Delivery], lane: Lane) -> None:
        """Starts the sends of one claim: a task each, or one for all where a call carries a batch."""
        job = self.jobs.known(rows[0].campaign_id)
        if isinstance(lane.provider, BatchProvider) and lane.provider.batch > 1:
            send = partial(self._send_batch, job, lane.provider, rows)
            self._start(self._finish(job, rows, send), f"batch {rows[0].claim_id}")
        else:
            for row in rows:
                self._start(self._finish(job, [row], partial(self._send, job, row)), f"delivery {row.delivery_id}")

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task_failed", task=task.get_name(), exc_info=error)

    async def _finish(self, job: Job, rows: Sequence[Delivery], send: Callable[[], Awaitable[list[Outcome]]]) -> None:
        """The slots are free when the outcomes are committed, not before."""
        outcomes: list[Outcome] = []
        try:
            outcomes = await send()
            self._watch_failures(job, outcomes)
            if outcomes:
                await self.settler.record(outcomes)
        finally:
            job.lane.give_back(len(rows), job.campaign.id)
        meters.settled(job.lane.provider.name, outcomes)

    def _watch_failures(self, job: Job, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.type in _ENDINGS and job.failures.note(failed=outcome.type == "Failed"):
                self._pause(job, "error_rate")

    async def _send(self, job: Job, delivery: Delivery) -> list[Outcome]:
        composed: Composed | None = None
        try:
            if job.writer is not None:
                composed = job.writer.compose(delivery)
        except RenderError as error:
            return [_unrendered(delivery, error.field, str(error))]
        except Exception as error:  # the letter's fault or ours; whichever, nothing has left
            log.exception("compose_failed", campaign=delivery.campaign_id, delivery=delivery.delivery_id)
            return [_unrendered(delivery, "letter", type(error).__name__)]
        provider, envelope = job.lane.provider, _envelope(job, delivery, composed)

        async def send() -> Sequence[Reply]:
            return [await provider.send(envelope, partial(self.permits.begin, delivery))]

        return await self._outcomes(job, [delivery], send, composed)

    async def _send_batch(self, job: Job, provider: BatchProvider, rows: Sequence[Delivery]) -> list[Outcome]:
        """One provider call for all that the permit allows."""
        try:
            reasons = await self.permits.begin_batch(rows)
        except Withheld as no:
            reasons = [no.reason] * len(rows)
        except asyncio.CancelledError:
            reasons = ["shutdown"] * len(rows)
        allowed = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
        withheld = [
            outcome
            for row, reason in zip(rows, reasons, strict=True)
            if reason is not None and (outcome := _withheld(row, reason)) is not None
        ]
        if not allowed:
            return withheld
        envelopes = [_envelope(job, row, None) for row in allowed]
        return withheld + await self._outcomes(job, allowed, partial(provider.send_batch, envelopes), None)

    async def _outcomes(
        self,
        job: Job,
        rows: Sequence[Delivery],
        send: Callable[[], Awaitable[Sequence[Reply]]],
        composed: Composed | None,
    ) -> list[Outcome]:
        """What became of each row; no outcome for one that is not ours any more, and then nothing of it was sent."""
        try:
            with meters.timed(meters.SEND.labels(job.lane.provider.name)):
                replies = await send()
            verdicts = [classify(reply) for _, reply in zip(rows, replies, strict=True)]
        except Withheld as no:
            return [outcome for row in rows if (outcome := _withheld(row, no.reason)) is not None]
        except NotBegun as error:
            return self._not_begun(job, rows, error.reply)
        except asyncio.CancelledError:
            # A provider lets a cancellation through only while the mail was certainly not taken.
            return [Outcome(row, "Released", {"reason": "shutdown"}) for row in rows]
        except Exception:
            log.exception("provider_failed", provider=job.lane.provider.name, campaign=rows[0].campaign_id)
            return [
                Outcome(row, "OutcomeUnknown", {"attempt": row.attempt, "reason": "provider_error"}) for row in rows
            ]
        return [self._answered(job, *answer, composed) for answer in zip(rows, replies, verdicts, strict=True)]

    def _not_begun(self, job: Job, rows: Sequence[Delivery], reply: Reply) -> list[Outcome]:
        """The relay is down or refuses us: no recipient's affair; the whole lane waits, or the campaign pauses."""
        verdict = classify(reply)
        if verdict.quota:
            self._pause(job, "provider_quota", verdict.retry_in or QUOTA_WAIT)
            wait, reason = RATE_LIMIT_WAIT, "rate_limited"
        elif verdict.kind == "permanent_batch":
            self._pause(job, "provider_auth")
            wait, reason = job.lane.broke(reply.text), "provider_refused"
        else:
            wait, reason = job.lane.broke(reply.text), "relay_down"
        return [Outcome(row, "Released", {"reason": reason}, due_in=wait, reply=_words(reply.text)) for row in rows]

    def _answered(
        self, job: Job, delivery: Delivery, reply: Reply, verdict: Verdict, composed: Composed | None
    ) -> Outcome:
        if reply.code is not None:
            job.lane.worked()
        if verdict.accepted:
            job.refused = 0
            job.lane.accepted()
            words = _words(reply.text) if composed is not None else None  # the queue id, of what is really queued
            return Outcome(delivery, "Sent", job.sent(delivery.attempt, composed), reply=words)
        tried = Try(delivery.attempt, delivery.age or NOTHING)
        quota = reply.code == 452 and job.lane.refused_452(fresh=delivery.attempt == 1)
        decision = decide(verdict, tried, job.policy, random=random.random(), quota=quota)
        self._consequences(job, decision)
        return Outcome(delivery, decision.type, decision.body, decision.due_in, decision.suppress, _words(reply.text))

    def _consequences(self, job: Job, decision: Decision) -> None:
        if decision.wait is not None:
            job.lane.wait(decision.wait)
        if decision.pause is not None:
            self._pause(job, decision.pause, decision.resume_in)
        if not decision.refused:
            job.refused = 0
        elif job.refusal():
            self._pause(job, "provider_refused")

    def _pause(self, job: Job, reason: str, resume_in: timedelta | None = None) -> None:
        """Once, however many sends ask for it together."""
        campaign_id = job.campaign.id
        if reason == "provider_quota":
            job.lane.short_of_quota(campaign_id)
        if campaign_id not in self._pausing:
            self._pausing.add(campaign_id)
            self._start(self._pause_once(job, reason, resume_in), f"pause {campaign_id}")

    async def _pause_once(self, job: Job, reason: str, resume_in: timedelta | None) -> None:
        try:
            await self.pause(job.campaign.id, reason, resume_in)
        finally:
            self._pausing.discard(job.campaign.id)
            job.lane.paused(job.campaign.id)


def _envelope(job: Job, delivery: Delivery, composed: Composed | None) -> Envelope:
    return Envelope(
        sender=job.sender,
        recipient=delivery.email or "",
        content=b"" if composed is None else composed.content,
        delivery=f"{delivery.campaign_id}.{delivery.delivery_id}",
    )


def _withheld(delivery: Delivery, reason: str) -> Outcome | None:
    match reason:
        case "lost":
            return None
        case "suppressed":
            return Outcome(delivery, "Skipped", {"reason": "suppressed"})
        case "campaign":
            return Outcome(delivery, "Released", {"reason": "paused"})
        case _:
            return Outcome(delivery, "Released", {"reason": reason})


def _unrendered(delivery: Delivery, field: str, why: str) -> Outcome:
    body = {"attempt": delivery.attempt, "class": "render", "code": field}
    return Outcome(delivery, "Failed", body, reply=_words(why))


def _words(text: str) -> str | None:
    """A provider's words as `replies` keeps them: at most 4 KB."""
    return scrub(text).strip().encode()[:REPLY_LIMIT].decode(errors="ignore") or None
