"""The way of one delivery from its claim to its recorded outcome."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial

import structlog

from ..ledger.queue import Delivery, Outcome
from ..messages.mime import Composed, RenderError
from .decide import Decision, Try, decide
from .jobs import Job, Jobs
from .lanes import Lane
from .permits import Permits
from .providers.base import BatchProvider, Envelope, NotBegun, Withheld
from .replies import Reply, Verdict, classify
from .settler import Settler

log = structlog.get_logger(__name__)

NOTHING = timedelta()


class Deliverer:
    """Sends what was claimed. `pause(campaign, reason)` pauses a campaign that cannot go on.

    Nothing here is recorded twice or left out: whatever happens to a send, `_outcome` says what became of it.
    """

    def __init__(
        self, jobs: Jobs, permits: Permits, settler: Settler, *, pause: Callable[[int, str], Awaitable[None]]
    ) -> None:
        self.jobs = jobs
        self.permits = permits
        self.settler = settler
        self.pause = pause
        self.tasks: set[asyncio.Task[None]] = set()

    def hand_over(self, rows: Sequence[Delivery], lane: Lane) -> None:
        """Starts the sends of one claim: a task each, or one for all where a call carries a batch."""
        job = self.jobs.known(rows[0].campaign_id)
        if isinstance(lane.provider, BatchProvider) and lane.provider.batch > 1:
            self._start(self._deliver_batch(job, lane.provider, rows), f"batch {rows[0].claim_id}")
        else:
            for row in rows:
                self._start(self._deliver(job, row), f"delivery {row.delivery_id}")

    def _start(self, work: Awaitable[None], name: str) -> None:
        task = asyncio.ensure_future(work)
        if isinstance(task, asyncio.Task):
            task.set_name(name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _deliver(self, job: Job, delivery: Delivery) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._outcome(job, delivery)
        finally:
            if outcome is not None:
                await self._record(job, [outcome])
            else:
                self._let_go(job, delivery, 1)

    async def _record(self, job: Job, outcomes: Sequence[Outcome]) -> None:
        """The slot is free when the outcome is committed, not before."""
        try:
            await self.settler.record(outcomes)
        finally:
            self._let_go(job, outcomes[0].delivery, len(outcomes))

    def _let_go(self, job: Job, delivery: Delivery, count: int) -> None:
        self.permits.drop(delivery.claim_id, count)
        job.lane.give_back(count)

    async def _outcome(self, job: Job, delivery: Delivery) -> Outcome | None:
        """What became of it; None when the row is not ours any more and nothing was sent."""
        composed: Composed | None = None
        try:
            if job.writer is not None:
                composed = job.writer.compose(delivery)
            envelope = self._envelope(job, delivery, composed)
            reply = await job.lane.provider.send(envelope, partial(self.permits.begin, delivery))
        except RenderError as error:
            body = {"attempt": delivery.attempt, "class": "render", "code": error.field}
            return Outcome(delivery, "Failed", body, reply=str(error))
        except Withheld as no:
            return self._withheld(delivery, no.reason)
        except NotBegun as error:
            return await self._not_begun(job, delivery, error.reply)
        except asyncio.CancelledError:
            # A provider lets a cancellation through only while the mail was certainly not taken.
            return Outcome(delivery, "Released", {"reason": "shutdown"})
        except Exception:
            log.exception("provider_failed", provider=job.lane.provider.name, delivery=delivery.delivery_id)
            return Outcome(delivery, "OutcomeUnknown", {"attempt": delivery.attempt, "reason": "provider_error"})
        return await self._answered(job, delivery, reply, composed)

    def _envelope(self, job: Job, delivery: Delivery, composed: Composed | None) -> Envelope:
        return Envelope(
            sender=job.sender,
            recipient=delivery.email or "",
            content=b"" if composed is None else composed.content,
            delivery=f"{delivery.campaign_id}.{delivery.delivery_id}",
        )

    def _withheld(self, delivery: Delivery, reason: str) -> Outcome | None:
        match reason:
            case "lost":
                return None
            case "suppressed":
                return Outcome(delivery, "Skipped", {"reason": "suppressed"})
            case "campaign":
                return Outcome(delivery, "Released", {"reason": "paused"})
            case _:
                return Outcome(delivery, "Released", {"reason": reason})

    async def _not_begun(self, job: Job, delivery: Delivery, reply: Reply) -> Outcome:
        """The relay is down or refuses us: not this recipient's affair; the whole lane waits, or the campaign pauses."""
        verdict = classify(reply)
        wait = job.lane.broke(reply.text)
        if verdict.kind == "permanent_batch" and reply.code is not None:
            await self.pause(delivery.campaign_id, "provider_auth")
            return Outcome(delivery, "Released", {"reason": "provider_refused"}, due_in=wait, reply=reply.text)
        return Outcome(delivery, "Released", {"reason": "relay_down"}, due_in=wait)

    async def _answered(self, job: Job, delivery: Delivery, reply: Reply, composed: Composed | None) -> Outcome:
        verdict = classify(reply)
        if verdict.accepted:
            job.lane.worked()
            job.refused = 0
            return Outcome(delivery, "Sent", self._sent(job, delivery, composed), reply=_words(reply, verdict))
        tried = Try(delivery.attempt, delivery.age or NOTHING)
        decision = decide(verdict, tried, job.policy, random=random.random())
        await self._consequences(job, delivery, decision)
        return Outcome(
            delivery, decision.type, decision.body, decision.due_in, decision.suppress, _words(reply, verdict)
        )

    async def _consequences(self, job: Job, delivery: Delivery, decision: Decision) -> None:
        if decision.wait is not None:
            job.lane.wait(decision.wait)
        if decision.pause is not None:
            await self.pause(delivery.campaign_id, decision.pause)
        if not decision.refused:
            job.refused = 0
        elif job.refusal():
            await self.pause(delivery.campaign_id, "provider_refused")

    def _sent(self, job: Job, delivery: Delivery, composed: Composed | None) -> dict[str, object]:
        body: dict[str, object] = {
            "attempt": delivery.attempt,
            "provider": job.lane.provider.name,
            "template": job.campaign.template,
        }
        if composed is not None:
            body |= {"message_id": composed.message_id, "content_sha256": composed.sha256}
        return body

    async def _deliver_batch(self, job: Job, provider: BatchProvider, rows: Sequence[Delivery]) -> None:
        """One provider call for all that the permit allows; each row gets its own outcome."""
        outcomes: list[Outcome] = []
        left = {row.delivery_id: row for row in rows}
        try:
            for row in rows:
                try:
                    await self.permits.begin(row)
                except Withheld as no:
                    del left[row.delivery_id]
                    outcome = self._withheld(row, no.reason)
                    if outcome is None:
                        self._let_go(job, row, 1)
                    else:
                        outcomes.append(outcome)
            replies = await provider.send_batch([self._envelope(job, row, None) for row in left.values()])
            outcomes += [
                await self._answered(job, row, reply, None) for row, reply in zip(left.values(), replies, strict=True)
            ]
        except asyncio.CancelledError:
            outcomes += [Outcome(row, "Released", {"reason": "shutdown"}) for row in left.values()]
        if outcomes:
            await self._record(job, outcomes)


def _words(reply: Reply, verdict: Verdict) -> str | None:
    """The provider's words as `replies` keeps them: what refuses, and the queue id of what was accepted."""
    text = reply.text.strip()
    return text.encode()[:4096].decode(errors="ignore") if text else None
