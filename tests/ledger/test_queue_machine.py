"""The queue beside a model in plain Python: whatever happens in whatever order, both are in the same state."""

import os
import uuid
from datetime import timedelta

import asyncpg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from postledger.ledger import queue
from postledger.ledger.queue import Delivery, Outcome
from postledger.projections.replay import replay
from postledger.projections.verify import verify
from tests import campaigns
from tests.clock import NOON, set_clock, stop_clock

from .model import Hold, Model, Report

# `POSTLEDGER_MACHINE_EXAMPLES=2000 POSTLEDGER_MACHINE_STEPS=80` looks for an hour.
EXAMPLES = int(os.environ.get("POSTLEDGER_MACHINE_EXAMPLES", "30"))
STEPS = int(os.environ.get("POSTLEDGER_MACHINE_STEPS", "30"))

LEASE = timedelta(seconds=60)
DUE_IN = st.sampled_from([timedelta(), timedelta(minutes=5), timedelta(hours=2)])
PEOPLE = st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=6)
OUTCOMES = ("Sent", "Sent", "Deferred", "Released", "Failed", "OutcomeUnknown", "Skipped")


class QueueMachine(RuleBasedStateMachine):
    """Each example is a campaign of its own in one database: the log cannot be emptied."""

    def __init__(self, lab):
        super().__init__()
        self.lab, self.conn = lab, lab.app
        self.holds = []  # what workers were given, and have not given up
        self.told = {}  # hold -> the outcome that its worker saw
        self.run = lab.run

    @initialize(
        hold_unknown=st.booleans(), attempts=st.integers(1, 3), is_begun=st.sampled_from([True, True, True, False])
    )
    def begin(self, hold_unknown, attempts, is_begun):
        self.model = Model(hold_unknown, attempts)
        self.run(set_clock(self.lab.owner, NOON))
        policy = "hold" if hold_unknown else "resend"
        name = str(uuid.uuid4())
        self.campaign = self.run(campaigns.draft(self.conn, name, unknown=policy, attempts=attempts))
        self.workers = [self.run(campaigns.enlist(self.conn)) for _ in range(3)]
        if is_begun:
            self.add([(n, n) for n in range(1, 6)])
            self.change("Started")

    # The campaign.

    @precondition(lambda self: self.model.status != "cancelled")
    @rule(event=st.sampled_from(["Started", "Paused", "Resumed", "Started", "Paused", "Resumed", "Cancelled"]))
    def change(self, event):
        if self.model.change(event):
            assert self.run(campaigns.change(self.conn, self.campaign, event)) == self.model.version
        else:
            assert self.refused(campaigns.change(self.conn, self.campaign, event)) == "PL004"

    @precondition(lambda self: sum(row.status in ("pending", "sending") for row in self.model.rows.values()) < 2)
    @rule()
    def finish(self):
        """And read the log again: it ends where the live rows are."""
        assert self.ask("SELECT finish_campaign($1)", self.campaign) == self.model.finish()
        last = self.run(self.last_states())
        assert last.pop(0)["version"] == self.model.version
        assert {id_: (state["status"], state["attempt"], state["version"]) for id_, state in last.items()} == {
            row.id: (row.status, row.attempt, row.version) for row in self.model.rows.values()
        }

    @rule(delta=st.sampled_from([timedelta(seconds=1), timedelta(minutes=10), timedelta(hours=3)]))
    def pass_time(self, delta):
        self.pass_to(self.model.now + delta)

    def pass_to(self, at):
        self.model.now = at
        self.run(set_clock(self.lab.owner, at))

    # People.

    @rule(people=PEOPLE)
    def add(self, people):
        people = [(f"k{key}", self.address(email)) for key, email in people]
        if self.model.status == "cancelled":
            assert self.refused(campaigns.enqueue(self.conn, self.campaign, people)) == "PL002"
            return
        fates = self.model.sort(people)
        counts = self.run(campaigns.enqueue(self.conn, self.campaign, people))
        names = ("accepted", "duplicate_key", "duplicate_address", "suppressed")
        assert counts == {"rows": len(people), "invalid": 0} | {name: fates.count(name) for name in names}
        ids = dict(
            self.fetch("SELECT recipient_key, delivery_id FROM recipients WHERE campaign_id = $1", self.campaign)
        )
        new = [(p, fate) for p, fate in zip(people, fates, strict=True) if not fate.startswith("duplicate")]
        self.model.add((ids[key], key, email, fate) for (key, email), fate in new)

    @rule(email=st.integers(1, 8))
    def suppress(self, email):
        address = self.address(email)
        is_new = self.ask("SELECT suppress($1, 'operator', 'test')", address)
        assert is_new == (address not in self.model.suppressed)
        self.model.suppressed.add(address)

    @rule(data=st.data(), everybody=st.booleans())
    def requeue(self, data, everybody):
        ids = None if everybody else data.draw(st.lists(st.sampled_from([*self.model.rows, -1]), max_size=4))
        call = self.conn.fetchval("SELECT requeue($1, $2, 'asked for', 'operator')", self.campaign, ids)
        if self.model.status in ("draft", "cancelled"):
            assert self.refused(call) == "PL002"
        else:
            assert self.run(call) == self.model.requeue(None if ids is None else set(ids))

    # Workers.

    @rule(data=st.data(), worker=st.integers(0, 2), limit=st.integers(1, 5))
    def claim_and_settle(self, data, worker, limit):
        """When something is due."""
        self.pass_to(self.model.now + max(self.model.next_due_in() or timedelta(), timedelta()))
        holds = self.claim(worker, limit)
        if holds:
            self.report(data, data.draw(st.lists(st.sampled_from(holds), min_size=1, unique=True)))

    @rule(worker=st.integers(0, 2), limit=st.integers(1, 5))
    def only_claim(self, worker, limit):
        self.claim(worker, limit)

    def claim(self, worker, limit):
        claim, worker = uuid.uuid4(), self.workers[worker]
        if worker in self.model.dead:
            assert self.refused(campaigns.claim(self.conn, self.campaign, worker, limit, claim)) == "PL006"
            return []
        holds, skipped, cancelled = self.model.claim(claim, worker, limit)
        answer = self.run(campaigns.claim(self.conn, self.campaign, worker, limit, claim))
        assert self.held(answer.rows) == holds
        assert (answer.skipped, answer.cancelled, answer.busy) == (skipped, cancelled, False)
        if len(holds) + skipped + cancelled < limit and self.model.status in ("sending", "cancelled"):
            assert answer.due_in == self.model.next_due_in()
        people = [self.model.rows[row.delivery_id] for row in answer.rows]
        assert [(row.key, row.email) for row in answer.rows] == [(person.key, person.email) for person in people]
        assert not any(person.email in self.model.suppressed for person in people)
        assert not people or self.model.status == "sending"
        self.holds += holds
        return holds

    @precondition(lambda self: self.model.claims)
    @rule(data=st.data())
    def claim_again(self, data):
        claim = data.draw(st.sampled_from([*self.model.claims]))
        worker = self.model.claims[claim].worker
        answer = self.run(campaigns.claim(self.conn, self.campaign, worker, 5, claim))
        assert self.held(answer.rows) == self.model.open_holds(claim)

    @precondition(lambda self: any(map(self.model.is_held, self.holds)))
    @rule(data=st.data())
    def settle(self, data):
        held = [hold for hold in self.holds if self.model.is_held(hold)]
        self.report(data, data.draw(st.lists(st.sampled_from(held), min_size=1, max_size=5, unique=True)))

    @precondition(lambda self: self.holds)
    @rule(data=st.data())
    def settle_whatever(self, data):
        """Late, again, and in time, together."""
        self.report(data, data.draw(st.lists(st.sampled_from(self.holds), min_size=1, max_size=5, unique=True)))

    @precondition(lambda self: self.untold())
    @rule(data=st.data())
    def come_back(self, data):
        """Workers that were taken for dead say what became of their mails."""
        self.report(data, data.draw(st.lists(st.sampled_from(self.untold()), min_size=1, max_size=5, unique=True)))

    @precondition(lambda self: self.told)
    @rule(data=st.data(), type_=st.sampled_from(OUTCOMES[2:]))
    def contradict(self, data, type_):
        """Another outcome than the one told before (but nobody says of a mail that did not leave that it did)."""
        hold = data.draw(st.sampled_from([*self.told]))
        self.record([Report(hold, type_)])

    @precondition(lambda self: self.model.claims)
    @rule(data=st.data())
    def lose_worker(self, data):
        lost = data.draw(st.sampled_from([taken.worker for taken in self.model.claims.values()]))
        assert self.ask("SELECT bury_worker($1, 1, $2)", lost, LEASE)
        self.model.dead.add(lost)
        self.reclaim(data)
        if lost in self.workers and data.draw(st.sampled_from([True, True, False])):
            self.workers[self.workers.index(lost)] = self.run(campaigns.enlist(self.conn))

    @rule(data=st.data())
    def reclaim(self, data):
        """Some of the dead's claims; nobody else's."""
        rows = self.fetch("SELECT claim_id FROM orphaned_claims() WHERE campaign_id = $1", self.campaign)
        orphans = {claim for claim, taken in self.model.claims.items() if taken.worker in self.model.dead}
        assert {row[0] for row in rows} == orphans
        for claim in [*self.model.claims]:
            if claim not in orphans:
                assert self.ask("SELECT reclaim($1, $2)", self.campaign, claim) == 0
            elif data.draw(st.sampled_from([True, True, False])):
                ended = self.model.end_claim(claim, "OutcomeUnknown")
                assert self.ask("SELECT reclaim($1, $2)", self.campaign, claim) == ended

    @precondition(lambda self: self.model.claims)
    @rule(data=st.data())
    def release(self, data):
        """A worker gives up a claim whose answer it never saw, and so never sends."""
        claim = data.draw(st.sampled_from([*self.model.claims]))
        taken = self.model.claims[claim]
        if any(hold in self.told for hold in taken.holds):
            return
        assert self.ask("SELECT release_claim($1, $2)", claim, taken.worker + 1) is None
        expected = self.model.end_claim(claim, "Released")
        assert self.ask("SELECT release_claim($1, $2)", claim, taken.worker) == expected
        self.holds = [hold for hold in self.holds if hold.claim != claim]

    @rule(data=st.data(), worker=st.integers(0, 2))
    def ask_permit(self, data, worker):
        worker = self.workers[worker]
        mine = {claim for claim, taken in self.model.claims.items() if taken.worker == worker}
        known = data.draw(st.lists(st.sampled_from([*self.model.claims, uuid.UUID(int=1)]), unique=True))
        permit = self.run(
            queue.ask_permit(self.conn, worker, 1, known, [], beat=False, now=0.0, timeout=campaigns.WITHIN)
        )
        rows = [
            self.model.rows[hold.delivery]
            for c in known
            if c in self.model.claims
            for hold in self.model.claims[c].holds
        ]
        assert permit.alive == (worker not in self.model.dead)
        assert permit.lost == set(known) - mine
        assert permit.strays == mine - set(known)
        assert permit.stopped == ({self.campaign} if rows and self.model.status != "sending" else set())
        assert permit.suppressed == {row.id for row in rows if row.email in self.model.suppressed}

    # What is true after each step.

    @invariant()
    def the_live_rows_are_those_of_the_model(self):
        rows = self.fetch(
            "SELECT delivery_id, status::text, attempt, due_at, version FROM recipient_queue WHERE campaign_id = $1",
            self.campaign,
        )
        assert sorted(map(tuple, rows)) == sorted(row.columns for row in self.model.rows.values())
        [row] = self.fetch(
            "SELECT status::text, version, pause_reason, swept_at IS NOT NULL FROM campaigns WHERE id = $1",
            self.campaign,
        )
        assert tuple(row) == (self.model.status, self.model.version, self.model.reason, self.model.swept)
        claims = self.fetch("SELECT claim_id, worker_id, unsettled FROM claims WHERE campaign_id = $1", self.campaign)
        expected = {(c, taken.worker, len(self.model.open_holds(c))) for c, taken in self.model.claims.items()}
        assert set(map(tuple, claims)) == expected

    @invariant()
    def the_log_is_that_of_the_model(self):
        events = self.fetch(
            "SELECT delivery_id, version, type FROM events WHERE campaign_id = $1 ORDER BY position", self.campaign
        )
        logs = {id_: [] for id_ in (0, *self.model.rows)}
        for delivery, version, type_ in events:
            logs[delivery].append((version, type_))
        for id_, row in self.model.rows.items():
            assert logs[id_] == [
                (entry.version, "Evidence" if entry.version is None else entry.type) for entry in row.log
            ]

    @invariant()
    def the_log_proves_the_rows(self):
        verification = self.run(verify(self.conn, self.campaign))
        assert (verification.differences, verification.total) == ([], len(self.model.rows))

    @invariant()
    def the_sums_are_the_audience(self):
        counted = "audience, pending, sending, sent, failed, skipped, cancelled, unknown"
        [(audience, *counts)] = self.fetch(
            f"SELECT {counted} FROM campaign_progress WHERE campaign_id = $1", self.campaign
        )
        assert audience == sum(counts) == len(self.model.rows)
        assert len({row.key for row in self.model.rows.values()}) == audience
        assert len({row.email for row in self.model.rows.values()}) == audience

    @invariant()
    def a_copy_follows_an_unknown_outcome_alone(self):
        accepted = [hold.delivery for hold, report in self.told.items() if report.type == "Sent"]
        for id_, row in self.model.rows.items():
            assert accepted.count(id_) <= 1 + row.count("OutcomeUnknown")

    # How the machine talks to the database.

    def address(self, number):
        return f"p{number}@c{self.campaign}.example"

    def fetch(self, statement, *arguments):
        return self.run(self.conn.fetch(statement, *arguments))

    def ask(self, statement, *arguments):
        return self.run(self.conn.fetchval(statement, *arguments))

    def refused(self, call):
        """The SQLSTATE."""
        with pytest.raises(asyncpg.PostgresError) as error:
            self.run(call)
        return error.value.sqlstate

    def untold(self):
        """What workers hold that the queue has given up."""
        return [hold for hold in self.holds if hold not in self.told and not self.model.is_held(hold)]

    def held(self, rows):
        return [Hold(row.delivery_id, row.claim_id, row.fence, row.attempt) for row in rows]

    def report(self, data, holds):
        for hold in holds:
            if hold not in self.told:
                type_ = data.draw(st.sampled_from(OUTCOMES))
                due_in = data.draw(DUE_IN) if type_ in ("Deferred", "Released", "OutcomeUnknown") else timedelta()
                suppress = "invalid_recipient" if type_ == "Failed" and data.draw(st.booleans()) else None
                self.told[hold] = Report(hold, type_, due_in, suppress)
        self.record([self.told[hold] for hold in holds])

    def record(self, reports):
        expected = self.model.settle(reports)
        settled = self.run(campaigns.settle(self.conn, self.campaign, [self.outcome(report) for report in reports]))
        assert (settled.applied, settled.repeated, settled.evidence) == expected

    def outcome(self, report):
        hold = report.hold
        body = {
            "Sent": {"provider": "null", "message_id": f"{hold.delivery}@example.org"},
            "Deferred": {"class": "retry"},
            "Released": {"reason": "shutdown"},
            "Failed": {"class": "permanent_recipient"},
            "OutcomeUnknown": {"reason": "lost"},
            "Skipped": {"reason": "expired"},
        }[report.type]
        if report.attempt is not None:
            body["attempt"] = report.attempt
        delivery = Delivery(self.campaign, hold.delivery, hold.claim, hold.fence, hold.attempt)
        return Outcome(delivery, report.type, body, report.due_in, report.suppress)

    async def last_states(self):
        return {int(event["delivery_id"]): state async for event, state in replay(self.conn, self.campaign)}


def test_the_queue_does_what_the_model_does(lab):
    lab.run(stop_clock(lab.owner))
    profile = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    run_state_machine_as_test(lambda: QueueMachine(lab), settings=profile)
