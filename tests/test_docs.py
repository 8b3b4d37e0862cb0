"""The pages for people: what they name is there."""

import re
from pathlib import Path

import click
import pytest

from postledger.cli.app import root

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
TESTS = {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def command_lines(page: str) -> list[list[str]]:
    """What follows `$ postledger` in the examples, to be typed as it stands."""
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [
        line.removeprefix("$ postledger ").split("#")[0].split() for line in lines if line.startswith("$ postledger ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_and_sources_that_are_named_exist(page: Path):
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"\btest_\w+\.py\b", text)) <= TESTS
    for path in re.findall(r"\b(?:src|tests)/[\w./-]*\w", text):
        assert (ROOT / path).exists(), path


def test_commands_and_flags_of_the_readme_exist():
    found = command_lines((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(found) > 10
    for words in found:
        command: click.Command = root
        context = click.Context(root)
        while isinstance(command, click.Group):
            known = command.get_command(context, words.pop(0))
            assert known is not None
            command = known
        flags = {flag for option in command.params for flag in option.opts}
        assert {word for word in words if word.startswith("--")} <= flags, words


def test_the_layout_in_the_readme_is_the_one_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^src/(\w+) ", text, re.MULTILINE))
    assert named == {path.parent.name for path in (ROOT / "src").glob("*/__init__.py")}
