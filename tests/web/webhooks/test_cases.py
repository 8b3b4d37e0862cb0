"""Every case of the providers' webhooks through the real endpoint: all of it twice, and in reverse.

POSTLEDGER_CASES names another folder with files of the same format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from postledger.config import Webhooks
from postledger.database import Connection
from postledger.http.webhooks.reading import PARSERS
from postledger.http.webhooks.vocabulary import Feedback
from postledger.messages.addresses import normalise
from tests.campaigns import change, claim, draft, enlist, enqueue, sent, settle
from tests.clock import set_clock, stop_clock
from tests.web.webhooks.service import World, open_service

OURS = Path(__file__).parent / "cases"
FILES = {"mailgun": "mailgun", "sendgrid": "sendgrid", "ses": "ses-sns", "postmark": "postmark"}

Case = dict[str, Any]


def files() -> list[tuple[str, Case]]:
    folder = Path(os.environ.get("POSTLEDGER_CASES") or OURS)
    return [(name, json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))) for name, stem in FILES.items()]


CASES = [pytest.param(name, file["config"], case, id=case["id"]) for name, file in files() for case in file["cases"]]


def keys_of(provider: str, config: dict[str, Any]) -> Webhooks:
    match provider:
        case "mailgun":
            return Webhooks(mailgun=(config["signing_key"],))
        case "sendgrid":
            return Webhooks(sendgrid=(config["public_key_base64_der"],))
        case "ses":
            return Webhooks(ses=tuple(config["allowed_topic_arns"]))
    return Webhooks(postmark=(f"{config['basic_auth_user']}:{config['basic_auth_password']}",))


def body_of(request: dict[str, Any]) -> bytes:
    return request["body_raw"].encode() if "body_raw" in request else json.dumps(request["body"]).encode()


def fits(status: int, wanted: str) -> bool:
    return f"{status // 100}xx" == wanted or str(status) == wanted


def accepted(requests: Sequence[dict[str, Any]], case: Case) -> list[dict[str, Any]]:
    """Those that are to be let in."""
    pairs = zip(requests, case["expect"]["respond"], strict=True)
    return [request for request, wanted in pairs if wanted.startswith("2")]


async def deliveries(conn: Connection, case: Case) -> dict[str, tuple[int, int]]:
    """What was sent before: a mail for each of our references, or each pair of message id and recipient."""
    mails: dict[str, dict[str, Any]] = {}
    for event in case["expect"]["events"]:
        if event["recipient"] is not None:
            mails.setdefault(event["delivery_ref"] or f"{event['message_id']} {event['recipient']}", event)
    if not mails:
        return {}
    campaign = await draft(conn, kind="standing")
    await change(conn, campaign, "Started")
    await enqueue(conn, campaign, [(key, event["recipient"]) for key, event in mails.items()])
    claimed = await claim(conn, campaign, await enlist(conn), len(mails))
    outcomes = []
    for row in claimed.rows:
        outcome = sent(row)
        outcomes.append(outcome.__class__(row, "Sent", {**outcome.body, "message_id": mails[row.key]["message_id"]}))
    await settle(conn, campaign, outcomes)
    return {row.key: (campaign, row.delivery_id) for row in claimed.rows}


@pytest.mark.parametrize("order", ["twice", "reversed"])
@pytest.mark.parametrize(("provider", "config", "case"), CASES)
async def test_case(database: str, owner: Connection, app: Connection, provider, config, case, order):
    await stop_clock(owner, datetime.fromisoformat(case["requests"][0]["at"]))
    mails = await deliveries(app, case)
    world = World({url: pem.encode() for url, pem in config.get("certs", {}).items()})
    pairs = list(zip(case["requests"], case["expect"]["respond"], strict=True))
    rounds = {"twice": pairs + pairs, "reversed": pairs[::-1]}[order]
    async with open_service(database, keys_of(provider, config), world) as service:
        for request, wanted in rounds:
            await set_clock(owner, datetime.fromisoformat(request["at"]))
            status = await service.post(provider, body_of(request), request["headers"])
            assert fits(status, wanted), (status, wanted)
    await _stored(app, case)
    await _final(app, case, mails)
    await _suppressed(app, case)
    _outside(case, world, config)


async def _stored(conn: Connection, case: Case) -> None:
    """Each thing once; of what was refused nothing."""
    assert (
        await conn.fetchval("SELECT count(*) FROM feedback WHERE kind <> 'control'") == case["expect"]["stored_events"]
    )
    told = await conn.fetchval("SELECT count(*) FROM feedback WHERE kind <> 'control' AND campaign_id IS NULL")
    assert told == 0, "every one has found its delivery"
    if not accepted(case["requests"], case):
        assert await conn.fetchval("SELECT count(*) FROM webhook_inbox") == 0
    assert await conn.fetchval("SELECT count(*) FROM webhook_inbox WHERE fault IS NOT NULL") == 0


async def _final(conn: Connection, case: Case, mails: dict[str, tuple[int, int]]) -> None:
    for key, wanted in case["expect"].get("final", {}).items():
        query = "SELECT outcome, flags FROM delivery_feedback WHERE campaign_id = $1 AND delivery_id = $2"
        found = await conn.fetchrow(query, *mails[key])
        outcome, flags = ("pending", []) if found is None else found
        assert (outcome, sorted(flags)) == (wanted["outcome"], sorted(wanted["flags"]))


async def _suppressed(conn: Connection, case: Case) -> None:
    told: dict[str, bool] = {}
    for event in case["expect"]["events"]:
        if event["recipient"] is not None:
            address = normalise(event["recipient"]).full
            told[address] = told.get(address, False) or event["suppress"]
    for address, suppress in told.items():
        query = "SELECT EXISTS (SELECT FROM suppressions WHERE address_hash = address_hash($1))"
        assert await conn.fetchval(query, address) is suppress


def _outside(case: Case, world: World, config: dict[str, Any]) -> None:
    """Certificates once each, one confirmation at most, and nothing else."""
    confirmations = [url for url in world.asked if url not in config.get("certs", {})]
    wanted = [e for e in case["expect"]["events"] if e["kind"] == "control"]
    assert len(confirmations) == len({e["dedupe_group"] for e in wanted})
    assert len(world.asked) == len(set(world.asked))
    if not accepted(case["requests"], case):
        assert world.asked == []


@pytest.mark.parametrize(("provider", "config", "case"), CASES)
def test_reading(provider, config, case):
    """What each request says, one by one and in order."""
    found = [item for request in accepted(case["requests"], case) for item in PARSERS[provider](body_of(request))]
    events = case["expect"]["events"]
    assert len(found) == len(events)
    groups: dict[str, set[tuple[str | None, bytes]]] = {}
    for item, event in zip(found, events, strict=True):
        assert isinstance(item, Feedback)
        _compare(item, event)
        groups.setdefault(event["dedupe_group"], set()).add((item.native_key, item.natural_key))
    natives = [native for keys in groups.values() for native in {native for native, _ in keys} if native]
    naturals = [natural for keys in groups.values() for natural in {natural for _, natural in keys}]
    assert len(natives) == len(set(natives)), "no two groups have a native key in common"
    assert len(naturals) == len(set(naturals)), "nor a natural one"


def _compare(item: Feedback, event: dict[str, Any]) -> None:
    meaning = item.meaning
    shown = {
        "kind": meaning.kind,
        "bounce_class": meaning.bounce_class,
        "provider_event_id": item.native_id,
        "recipient": item.recipient,
        "suppress": meaning.suppress is not None,
        "suppress_reason": meaning.suppress,
        "delivery_ref": item.delivery_ref,
        "message_id": item.message_id,
    }
    if event.get("machine") is not None:
        shown["machine"] = item.machine
    for name, value in shown.items():
        assert value == event[name] or value in event.get("also_ok", {}).get(name, ()), name
    if event["occurred_at"] is not None:
        assert item.occurred_at is not None
        assert abs((item.occurred_at - datetime.fromisoformat(event["occurred_at"])).total_seconds()) < 0.001
