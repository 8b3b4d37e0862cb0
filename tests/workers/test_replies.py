"""Reply classification: every case of the tables, and what must hold for any reply at all.

POSTLEDGER_CASES names a folder with a `smtp-replies.json` of the same format; by default the cases that are
shared beside the repository are run where they exist. Our own are always run.
"""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from postledger.workers.replies import Reply, classify
from postledger.workers.reply import STAGES, enhanced_code
from postledger.workers.reply_tables import RULES

OWN = Path(__file__).parent / "data" / "replies.json"
SHARED = Path(__file__).parents[2].parent / "shared" / "email-cases"


def read(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cases"]


def foreign() -> list[dict[str, Any]]:
    named = os.environ.get("POSTLEDGER_CASES")
    path = Path(named or SHARED) / "smtp-replies.json"
    return read(path) if named or path.exists() else []


CASES = [pytest.param(case, id=case["id"]) for case in read(OWN) + foreign()]


def reply_of(case: dict[str, Any]) -> Reply:
    return Reply(case["stage"], case["code"], case["enhanced"], case["text"], case.get("context"))


@pytest.mark.parametrize("case", CASES)
def test_case(case: dict[str, Any]):
    expect = case["expect"]
    verdict = classify(reply_of(case))
    assert verdict.kind in {expect["class"], *expect.get("also_ok", ())}
    assert verdict.suppress in expect.get("suppress_also_ok", [expect["suppress"]])
    if "greylisted" in expect:
        assert verdict.greylisted is expect["greylisted"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in read(OWN)])
def test_scope_and_alert_of_our_own_cases(case: dict[str, Any]):
    """Advice for a foreign file; here they decide whether a campaign stops, so ours are held to them."""
    expect = case["expect"]
    verdict = classify(reply_of(case))
    if verdict.kind == expect["class"]:
        assert (verdict.scope, verdict.alert) == (expect["scope"], expect["alert"])


def test_every_row_of_the_tables_decides_a_case():
    replies = [reply_of(case) for case in read(OWN)]
    decided = {deciding_row(reply) for reply in replies} - {None}
    assert [number for number in range(len(RULES)) if number not in decided] == []


def deciding_row(reply: Reply) -> int | None:
    if reply.code is None or not 400 <= reply.code < 600:
        return None
    return next(number for number, row in enumerate(RULES) if row.outcome(reply, reply.words))


@pytest.mark.parametrize("case", CASES)
def test_enhanced_code_is_found_in_the_text(case: dict[str, Any]):
    parsed = Reply.parse(case["stage"], case["code"], case["text"])
    assert parsed.enhanced == case["enhanced"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("5.1.1 no basic code before it", "5.1.1"),
        ("250-mx.example.net\n250 2.1.5 Ok", "2.1.5"),
        ("421 5.7.32 classes may disagree", "5.7.32"),
        ("550 #5.1.0 Address rejected.", "5.1.0"),
        ("550 see (#5.7.1)", "5.7.1"),
        ("220 mx.example.net ESMTP 4.9.2", None),
        ("421 4.16.55.1", None),
        ("550 3.1.1 no such class", None),
        ("", None),
    ],
)
def test_enhanced_code(text: str, code: str | None):
    assert enhanced_code(text) == code


@pytest.mark.parametrize(
    ("code", "text", "quota", "retry_in"),
    [
        (452, "452 4.3.1 Daily sending quota exceeded", True, None),
        (550, "550 5.4.5 Daily user sending limit exceeded", True, None),
        (550, "550 5.4.5 No more today", True, None),
        (454, "454 4.7.0 Daily message quota exceeded, try again in 6 hours", True, timedelta(hours=6)),
        (421, "421 4.7.0 Hourly limit reached; retry after 1800 seconds", True, timedelta(minutes=30)),
        (452, "452 4.3.1 Quota of 500 per day exceeded. Resets in 2 days", True, timedelta(days=1)),
        (421, "421 4.7.0 Sending limit reached, wait 5s", True, timedelta(minutes=1)),
        (454, "454 4.7.0 Throttling failure: Maximum sending rate exceeded", False, None),
        (421, "421 4.7.26 Unauthenticated mail is rate limited", False, None),
        (452, "452 4.2.2 Mailbox full", False, None),
        (452, "452 4.3.1 Insufficient system storage", False, None),
    ],
)
def test_a_quota_and_the_wait_that_it_names(code: int, text: str, quota: bool, retry_in: timedelta | None):
    verdict = classify(Reply("rcpt", code, enhanced_code(text), text))
    assert (verdict.quota, verdict.retry_in) == (quota, retry_in)
    assert not quota or (verdict.kind, verdict.scope, verdict.alert) == ("rate_limited", "sender", True)


def test_what_events_record():
    assert classify(Reply.parse("rcpt", 550, "550 5.1.1 User unknown")).code == "550 5.1.1"
    assert classify(Reply.parse("rcpt", 450, "450 later")).code == "450"
    assert classify(Reply.lost("eod", "connection lost")).code == "none"


def test_parse_makes_a_text_storable():
    reply = Reply.parse("rcpt", 550, "550 \x00\udcff" + "x" * 10_000)
    assert reply.text.startswith("550 \ufffd\ufffdx")
    assert len(reply.text) <= 4000


def test_a_reply_belongs_to_a_known_stage():
    with pytest.raises(ValueError, match="'stage' must be in"):
        Reply("quit", 221, None, "221 Bye")  # type: ignore[arg-type]


FRAGMENTS = sorted({word for case in read(OWN) for word in case["text"].split()})
texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=200),
    st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(" ".join),
    st.sampled_from(FRAGMENTS).map(lambda word: word * 2000),
)
enhanced = st.one_of(st.none(), st.text(max_size=20), st.from_regex(r"[245]\.[0-9]{1,3}\.[0-9]{1,3}", fullmatch=True))
replies = st.builds(
    Reply,
    stage=st.sampled_from(STAGES),
    code=st.one_of(st.none(), st.integers(200, 599), st.integers()),
    enhanced=enhanced,
    text=texts,
    context=st.one_of(st.none(), st.just("microsoft 365"), st.text(max_size=10)),
)


@settings(deadline=None, max_examples=600)
@given(replies)
def test_any_reply_has_a_verdict_that_keeps_the_rules(reply: Reply):
    verdict = classify(reply)
    told = reply.code is not None and 200 <= reply.code < 600
    if verdict.accepted:
        assert reply.stage == "eod"
        assert told
        assert reply.code // 100 == 2
    if reply.stage == "eod":
        assert verdict.accepted == (verdict.kind == "success")
        assert (verdict.kind == "unknown") == (not told or reply.code // 100 == 3)
    else:
        assert verdict.kind != "unknown"
        assert told or verdict.kind == "retry" or (verdict.kind, verdict.scope) == ("permanent_batch", "sender")
    if verdict.suppress:
        assert verdict.kind == "permanent_recipient"
        assert reply.code // 100 == 5
        assert reply.stage in {"rcpt", "data", "eod", "any"}
    if verdict.kind == "permanent_batch":
        assert verdict.alert
    if verdict.greylisted:
        assert verdict.kind == "retry"


@settings(deadline=None, max_examples=300)
@given(replies)
def test_4xx_is_never_final_for_a_recipient(reply: Reply):
    if reply.code is not None and reply.code // 100 == 4:
        assert classify(reply).kind in {"retry", "rate_limited", "permanent_batch"}


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(STAGES), st.one_of(st.none(), st.integers()), texts)
def test_parse_takes_any_text(stage: str, code: int | None, text: str):
    reply = Reply.parse(stage, code, text)
    assert reply.text.encode("utf-8") is not None
    classify(reply)
