"""What is said against a letter before the first mail."""

from typing import Any

import pytest
from attrs import evolve

from postledger.messages.addresses import InvalidAddress
from postledger.messages.checklist import Draft, Problem, check, required_variables
from postledger.messages.mime import prepare

GOOD = Draft(
    "Hello {{ name }}",
    "Shop <news@shop.example>",
    '<p>Dear {{ name }}</p><a href="{{ unsubscribe_url }}">Leave</a>',
)
URL = "https://mail.example.com"


def found(draft: Draft, *, kind: Any = "bulk", base_url: str | None = URL) -> list[Problem]:
    return check(draft, kind=kind, base_url=base_url)


def test_a_good_letter_has_no_problem_and_compiles() -> None:
    assert found(GOOD) == []
    assert prepare(GOOD.letter()).subject.variables() == {"name"}


@pytest.mark.parametrize(
    ("change", "field", "reason"),
    [
        ({"subject": ""}, "subject", "empty"),
        ({"subject": " \u00a0"}, "subject", "empty"),
        ({"subject": "Hello\r\nBcc: eve@example.com"}, "subject", "a line break"),
        ({"subject": "Hello\n"}, "subject", "a line break"),
        ({"subject": "a\x00b"}, "subject", "U+0000"),
        ({"subject": "x" * 999}, "subject", "999 characters"),
        ({"subject": "{{ name }}" + "x" * 999}, "subject", "999 characters"),
        ({"subject": "x" * 10_000_000}, "subject", "10,000,000 characters"),
        ({"subject": "{{ x"}, "subject", "line 1"),
        ({"html": "\n\n{{ x"}, "html", "line 3"),
        ({"html": "{{ x|nonsense }}"}, "html", "nonsense"),
        ({"text": "{% if x %}"}, "text", "line 1"),
        ({"sender": None}, "from", "no sender"),
        ({"sender": ""}, "from", "no sender"),
        ({"sender": "nobody"}, "from", "no @"),
        ({"sender": "Shop\nX <news@shop.example>"}, "from", "a line break"),
        ({"reply_to": "nobody"}, "reply-to", "no @"),
        ({"list_id": "news"}, "list-id", "form"),
        ({"feedback_id": "news"}, "feedback-id", "form"),
        ({"headers": (("Bcc", "eve@example.com"),)}, "bcc", "may set"),
    ],
)
def test_errors_name_field_reason_and_remedy(change: dict[str, Any], field: str, reason: str) -> None:
    first = found(evolve(GOOD, **change))[0]
    assert (first.field, first.severity) == (field, "error")
    assert reason in first.reason
    assert first.remedy
    assert str(first).startswith(f"{field}: ")
    assert "\n" not in str(first)
    assert "eve" not in str(first)


def test_all_problems_at_once_errors_first() -> None:
    problems = found(Draft("", None, "{{ x" + "y" * 110_000, text="{{ z"), base_url=None)
    assert [(problem.severity, problem.field) for problem in problems] == [
        ("error", "from"),
        ("error", "subject"),
        ("error", "html"),
        ("error", "text"),
        ("warning", "html"),
        ("warning", "unsubscribe"),
    ]


@pytest.mark.parametrize("kind", ["bulk", "standing"])
@pytest.mark.parametrize("field", ["subject", "html", "text"])
def test_a_link_without_an_address_to_make_it_of(kind: str, field: str) -> None:
    draft = evolve(GOOD, **{"html": "x", field: "{{ unsubscribe_url }}"})
    (error,) = [problem for problem in found(draft, kind=kind, base_url=None) if problem.severity == "error"]
    assert error.field == "unsubscribe_url"
    assert "POSTLEDGER_URL" in error.remedy
    guarded = evolve(draft, **{field: "{% if unsubscribe_url is defined %}{{ unsubscribe_url }}{% endif %}!"})
    assert not [problem for problem in found(guarded, kind=kind, base_url=None) if problem.severity == "error"]


def test_warnings() -> None:
    plain = evolve(GOOD, html="<p>x</p>")
    assert [problem.reason for problem in found(plain)] == ["the letter has no visible link to unsubscribe"]
    assert [problem.reason for problem in found(plain, base_url=None)] == [
        "the mails will carry no link to unsubscribe"
    ]
    assert found(plain, kind="standing") == []
    assert found(plain, kind="standing", base_url=None) == []
    assert "https" in found(GOOD, base_url="http://127.0.0.1:8025")[0].reason
    limit = 102 * 1024
    link = "{{ unsubscribe_url }}"
    assert found(evolve(GOOD, html=link + "x" * (limit - len(link)))) == []
    (clipped,) = found(evolve(GOOD, html=link + "x" * (limit - len(link) + 1)))
    assert (clipped.field, clipped.severity) == ("html", "warning")


def test_required_variables() -> None:
    letter = Draft(
        "{{ first }} {{ campaign }}",
        "news@shop.example",
        "{{ name }} {{ email }} {{ key }} {{ data['Last name'] }} {{ data.email }} {{ city|default('x') }}"
        "{% for item in items %}{{ item }}{% endfor %}{{ unsubscribe_url }}",
        text="{{ only_in_text }}",
    ).letter()
    assert required_variables(letter) == {"first", "name", "Last name", "items", "only_in_text"}


def test_a_draft_without_sender_is_no_letter() -> None:
    with pytest.raises(InvalidAddress):
        evolve(GOOD, sender=None).letter()
