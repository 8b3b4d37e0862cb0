"""One recipient's history in plain words."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Event = Mapping[str, Any]


def tell(events: Iterable[Event]) -> Iterator[tuple[str, str, str]]:
    """Time of day (UTC), event, and what it means, for each event in its public form."""
    for event in events:
        yield _clock(event["at"]), event["type"], _meaning(event["type"], event["body"])


def _meaning(type_: str, body: Mapping[str, Any]) -> str:
    match type_:
        case "Queued":
            return "written down; the digest seals who it is"
        case "Claimed":
            return f"worker {body['worker']} takes the row for try {body['attempt']}, before the mail may leave"
        case "Deferred":
            return f"the server says {body.get('code', 'none')}: again at {_clock(body['due_at'])}"
        case "OutcomeUnknown":
            return f"try {body['attempt']}: the connection broke after the final dot; the server may have the mail"
        case "Requeued":
            return f"the campaign's policy is `resend`: again at {_clock(body['due_at'])}"
        case "Sent":
            return f"try {body['attempt']} was accepted, Message-ID {body.get('message_id', 'none')}"
        case _:
            return ", ".join(f"{name} {value}" for name, value in body.items())


def _clock(moment: str) -> str:
    """12:34:56.789 of an RFC 3339 time."""
    return moment[11:23]
