"""What can be said against a letter before the first mail leaves, without looking at a recipient."""

import re
from collections.abc import Callable, Iterator
from typing import Literal

from attrs import frozen

from ..errors import DataError
from .addresses import CONTROLS, Mailbox, parse_mailbox
from .headers import LINE_LIMIT, HeaderError
from .letter import Kind, Letter
from .markup import Markup
from .mime import prepare
from .tags import TemplateError
from .templates import Template

CLIP_LIMIT = 102 * 1024
"""Bytes of HTML; of more than that Gmail shows the beginning only."""

_TAG = re.compile(r"\{\{.*?\}\}")
_ALWAYS_THERE = frozenset({"email", "key", "campaign", "unsubscribe_url"})
_ANYBODY = Mailbox(None, parse_mailbox("somebody@example.com").address)


@frozen
class Problem:
    """`error`: nothing may be sent. `warning`: it may, and somebody should know."""

    field: str
    reason: str
    remedy: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        return f"{self.field}: {self.reason}; {self.remedy}"


@frozen
class Draft:
    """A letter as its author gave it: `sender` is the From and `reply_to` the Reply-To, as text."""

    subject: str
    sender: str | None
    html: str
    text: str | None = None
    reply_to: str | None = None
    list_id: str | None = None
    feedback_id: str | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def letter(self) -> Letter:
        """Raises InvalidAddress, InvalidName or HeaderError; not for templates, which only `check` reads."""
        return Letter(
            self.subject,
            parse_mailbox(self.sender or ""),
            self.html,
            text=self.text,
            reply_to=parse_mailbox(self.reply_to) if self.reply_to else None,
            list_id=self.list_id,
            feedback_id=self.feedback_id,
            headers=self.headers,
        )


def check(draft: Draft, *, kind: Kind, base_url: str | None) -> list[Problem]:
    """All that is wrong with the draft, errors first; `base_url` is POSTLEDGER_URL."""
    templates, broken = _compile(draft)
    problems = [
        *_check_mailboxes(draft),
        *_check_headers(draft),
        *_check_subject(draft.subject),
        *broken,
        *_check_size(draft.html),
        *_check_links(templates, kind, base_url),
    ]
    return sorted(problems, key=lambda problem: problem.severity)


def required_variables(letter: Letter) -> frozenset[str]:
    """The headers that recipients need to have: what the letter cannot do without and is not always there.

    `name` is among them where the letter uses it: it stands for the recipient's name, all others for merge data.
    A name with a default (`{{ city|default("your town") }}`), or asked for by `is defined`, is not. Raises
    TemplateError.
    """
    press = prepare(letter)
    templates = [press.subject, press.markup.source, *([press.text] if press.text else [])]
    return frozenset().union(*(template.required for template in templates)) - _ALWAYS_THERE


def _check_mailboxes(draft: Draft) -> Iterator[Problem]:
    if not draft.sender:
        yield Problem("from", "no sender", "name one such as `Shop <news@shop.example>`")
    for field, text in (("from", draft.sender), ("reply-to", draft.reply_to)):
        try:
            if text:
                parse_mailbox(text)
        except DataError as error:
            yield Problem(field, str(error), "write it as `Shop <news@shop.example>`")


def _check_headers(draft: Draft) -> Iterator[Problem]:
    try:
        Letter(
            "",
            _ANYBODY,
            "",
            list_id=draft.list_id,
            feedback_id=draft.feedback_id,
            headers=draft.headers,
        )
    except HeaderError as error:
        yield Problem(error.field.lower(), error.reason, "correct or leave out this header")


def _check_subject(subject: str) -> Iterator[Problem]:
    if not subject.strip():
        yield Problem("subject", "empty", "give the mail a subject")
    if found := CONTROLS.search(subject):
        what = "a line break" if found[0] in "\r\n" else f"the control character U+{ord(found[0]):04X}"
        yield Problem("subject", f"{what} in it", "write it in one line")
    fixed = len(_TAG.sub("", subject))
    if fixed > LINE_LIMIT and "{%" not in subject:
        yield Problem("subject", f"{fixed:,} characters", f"keep it below {LINE_LIMIT}")


def _compile(draft: Draft) -> tuple[list[Template], list[Problem]]:
    """The templates that are right, and what is wrong with the others."""
    makers: dict[str, Callable[[], Template]] = {
        "subject": lambda: Template.compile(draft.subject, "subject"),
        "html": lambda: Markup.prepare(draft.html, with_text=draft.text is None).source,
        "text": lambda: Template.compile(draft.text or "", "text"),
    }
    templates, problems = [], []
    for field, make in makers.items():
        try:
            templates.append(make())
        except TemplateError as error:
            problems.append(Problem(field, str(error), "correct the template"))
    return templates, problems


def _check_size(html: str) -> Iterator[Problem]:
    size = len(html.encode(errors="replace"))
    if size > CLIP_LIMIT:
        reason = f"{size:,} bytes, of which Gmail shows the first {CLIP_LIMIT:,}"
        yield Problem("html", reason, "shorten it, or link to the rest", "warning")


def _check_links(templates: list[Template], kind: Kind, base_url: str | None) -> Iterator[Problem]:
    required = any("unsubscribe_url" in template.required for template in templates)
    used = any("unsubscribe_url" in template.variables() for template in templates)
    set_url = "set POSTLEDGER_URL to the public https address of this installation"
    if required and base_url is None:
        yield Problem("unsubscribe_url", "used, and there is no address to make it of", f"{set_url}, or take it out")
    if kind == "standing":
        return
    if base_url is None:
        yield Problem("unsubscribe", "the mails will carry no link to unsubscribe", set_url, "warning")
    elif not used:
        remedy = 'put in <a href="{{ unsubscribe_url }}">'
        yield Problem("unsubscribe", "the letter has no visible link to unsubscribe", remedy, "warning")
    if base_url is not None and not base_url.startswith("https://"):
        reason = "mail readers follow one-click links over https only (RFC 8058)"
        yield Problem("unsubscribe", reason, set_url, "warning")
