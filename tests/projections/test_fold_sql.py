"""The fold of verify.sql is the one of fold.py, on any walk: it finds what fold.py finds, and nothing else."""

from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.events.codec import body_of
from postledger.events.fold import StreamError, evolve_delivery
from postledger.events.machines import DELIVERY
from postledger.events.types import EVENTS, DeliveryEvent, Queued, StreamKind
from postledger.projections.shapes import shapes
from postledger.projections.streams import sql
from tests.events.strategies import events

CLASSES = {cls.type: cls for cls in EVENTS if cls.stream is StreamKind.DELIVERY}
OBSERVATIONS = [cls for cls in CLASSES.values() if not cls.versioned]


@frozen
class Walk:
    """A stream's events with their versions."""

    steps: tuple[tuple[int | None, DeliveryEvent], ...]

    @property
    def state(self):
        """Where it leads to; None where it cannot be."""
        state = None
        try:
            for version, event in self.steps:
                state = evolve_delivery(state, event, version)
        except StreamError:
            return None
        return state


def attempts(event):
    return evolve(event, attempt=event.attempt % 1000 + 1) if hasattr(event, "attempt") else event


@st.composite
def walks(draw, legal=True):
    """From Queued on, mostly where the table leads; observations in between."""
    steps, status = [(1, draw(events(Queued)))], "pending"
    for _ in range(draw(st.integers(0, 6))):
        rows = [row for row in DELIVERY if row.from_status == status]
        if draw(st.integers(0, 3)) == 0:
            steps.append((None, draw(events(draw(st.sampled_from(OBSERVATIONS))))))
        elif not legal and draw(st.integers(0, 3)) == 0:
            version = draw(st.sampled_from([None, len(steps), len(steps) + 1, 9]))
            if version not in [v for v, _ in steps] or version is None:
                steps.append((version, draw(events(draw(st.sampled_from([*CLASSES.values()]))))))
        elif rows:
            row = draw(st.sampled_from(rows))
            status = row.to_status
            version = max(v or 0 for v, _ in steps) + 1
            steps.append((version, draw(events(CLASSES[row.event]))))
    return Walk(tuple((version, attempts(event)) for version, event in steps))


@settings(deadline=None, max_examples=60)
@given(st.lists(walks(), max_size=6))
def test_what_python_folds_to_is_equal(lab, drawn):
    campaign = lab.run(written(lab, drawn))
    assert lab.run(differing(lab, campaign)) == set()


@settings(deadline=None, max_examples=60)
@given(st.lists(walks(legal=False), max_size=6))
def test_what_python_refuses_is_found(lab, drawn):
    campaign = lab.run(written(lab, drawn))
    assert lab.run(differing(lab, campaign)) == {n for n, walk in enumerate(drawn, 1) if walk.state is None}


async def written(lab, drawn):
    """A campaign with these streams as deliveries 1, 2, ..., and the rows that they fold to; its id."""
    campaign = await lab.owner.fetchval("SELECT nextval('campaigns_id_seq')")
    insert = "INSERT INTO events (campaign_id, delivery_id, version, type, body) VALUES ($1, $2, $3, $4, $5)"
    row = "INSERT INTO recipient_queue VALUES ($1, $2, $3, $4, $5, $6)"
    for delivery, walk in enumerate(drawn, 1):
        for version, event in walk.steps:
            await lab.owner.execute(insert, campaign, delivery, version, event.type, body_of(event))
        if state := walk.state:
            await lab.owner.execute(row, campaign, delivery, state.status, state.attempt, state.due_at, state.version)
        else:
            await lab.owner.execute(row, campaign, delivery, "skipped", 0, None, 1)
    return campaign


async def differing(lab, campaign):
    rows = await lab.app.fetch(sql.deliveries, campaign, shapes(StreamKind.DELIVERY))
    return {row["delivery_id"] for row in rows}
