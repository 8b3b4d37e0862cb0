"""docs/mail.md lists what a template may use; the sandbox sends people there."""

import re
from pathlib import Path

from postledger.messages.sandbox import FILTERS, TESTS

PAGE = Path(__file__).parents[2] / "docs" / "mail.md"
SECOND_NAMES = {"d", "e", "equalto", "greaterthan", "lessthan"}


def listed(what: str) -> set[str]:
    (words,) = re.findall(rf"^\* the {what} `([a-z0-9 ]+)`", PAGE.read_text(), re.MULTILINE)
    return set(words.split())


def test_the_page_lists_the_filters_and_tests_there_are() -> None:
    assert listed("filters") == FILTERS - SECOND_NAMES
    assert listed("tests") == TESTS - SECOND_NAMES
