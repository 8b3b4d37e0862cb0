"""The letter and its sender as files and flags give them, checked before any database is asked."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from attrs import frozen

from ..errors import DataError, UsageError
from ..ledger.audience.header import Columns
from ..ledger.campaigns import Source
from ..messages.addresses import CONTROLS
from ..messages.checklist import Draft, Problem, check, required_variables
from ..messages.letter import Kind

NAME_LIMIT = 200


@frozen
class Letter:
    """A letter that may be sent; `variables` are those that recipients must have, `warnings` what is odd about it."""

    source: Source
    mail_from: str
    variables: frozenset[str]
    warnings: tuple[str, ...]


def read_letter(
    subject: str, mail_from: str, html: str, text: str | None, *, base_url: str | None, kind: Kind = "bulk"
) -> Letter:
    """`html` and `text` are paths. Raises DataError with all that is wrong, in one line."""
    draft = Draft(
        subject=_utf8("--subject", subject),
        sender=_utf8("--from", mail_from).strip(),
        html=_read(html),
        text=None if text is None else _read(text),
    )
    files = {"subject": "--subject", "from": "--from", "html": html, "text": text or ""}
    problems = check(draft, kind=kind, base_url=base_url)
    if errors := [problem for problem in problems if problem.severity == "error"]:
        raise DataError(" | ".join(_worded(problem, files) for problem in errors))
    return Letter(
        Source(draft.subject, draft.html, draft.text),
        draft.sender or "",
        required_variables(draft.letter()),
        tuple(_worded(problem, files) for problem in problems),
    )


def check_columns(letter: Letter, columns: Columns, name: str) -> None:
    """Raises DataError for what the letter needs and no column of `name` gives."""
    there = {*columns.data, *(["name"] if columns.name is not None else [])}
    missing = sorted(letter.variables - there)
    if missing:
        found = ", ".join(["email", *(["key"] if columns.key is not None else []), *sorted(there)])
        raise DataError(
            f"the letter uses {_tags(missing)}, but {name} has only the columns {found}: add the column, correct the "
            f'letter, or give a default, {{{{ {missing[0]}|default("...") }}}}'
        )


def campaign_name(given: str | None, html: str, subject: str) -> str:
    """The name that was given; else one that the same command finds again on any other day.

    It holds no date and nothing of the letter's content: a corrected letter to the same people is then noticed, and not
    sent to all of them a second time.
    """
    if given is None:
        return f"{Path(html).stem}: {' '.join(CONTROLS.sub(' ', subject).split())}"[:NAME_LIMIT]
    name = _utf8("--name", given).strip()
    if found := CONTROLS.search(name):
        what = "a line break" if found[0] in "\r\n" else f"the control character U+{ord(found[0]):04X}"
        raise DataError(f"--name has {what} in it: write it in one line")
    if not 0 < len(name) <= NAME_LIMIT:
        raise DataError(f"--name has {len(name)} characters: give it between 1 and {NAME_LIMIT}")
    return name


def _worded(problem: Problem, files: dict[str, str]) -> str:
    return f"{files.get(problem.field, problem.field)}: {problem.reason}; {problem.remedy}"


def _tags(names: Collection[str]) -> str:
    return ", ".join(f"{{{{ {name} }}}}" for name in names)


def _utf8(flag: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DataError(f"{flag} has bytes that are not UTF-8: write it in the terminal's own encoding") from None
    return text


def _read(path: str) -> str:
    if path == "-":
        raise UsageError("the letter is read from a file; only --to may be -, standard input")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError:
        raise DataError(f"{path!r} is no path") from None
    if not data.strip():
        raise DataError(f"{path} is empty: there is nothing to send")
    return _decoded(path, data)


def _decoded(path: str, data: bytes) -> str:
    """UTF-8, or UTF-16 that says so."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}, {_place(data, error.start)}: not UTF-8: save the letter as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path}, line {line}: a NUL character: save the letter as plain UTF-8 text")
    return text


def _place(data: bytes, at: int) -> str:
    line = data.count(b"\n", 0, at) + 1
    return f"line {line}"
