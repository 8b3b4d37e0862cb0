"""What the wheel holds and what it needs: lists in pyproject.toml against what is really there."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower() for requirement in requirements}


DECLARED = named(PROJECT["project"]["dependencies"])


def in_source(*patterns: str) -> set[str]:
    """Files of the package, as the wheel should name them."""
    found = (path for pattern in patterns for path in SRC.rglob(pattern) if "__pycache__" not in path.parts)
    return {f"postledger/{path.relative_to(SRC).as_posix()}" for path in found if path.is_file()}


def imported() -> set[str]:
    """The distributions that modules of the package import."""
    names: set[str] = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add((node.module or "").partition(".")[0])
    homes = packages_distributions()
    return {homes[name][0].lower().replace("_", "-") for name in names - sys.stdlib_module_names - {"postledger"}}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built without network, from a copy: setuptools leaves its traces where it builds."""
    copy, target = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    command = ["tar", "-C", str(ROOT), "--exclude=__pycache__", "--exclude=*.egg-info", "-cf", "-"]
    files = ["pyproject.toml", "README.md", "LICENSE", "schema.sql", "src"]
    packed = subprocess.run([*command, *files], check=True, capture_output=True).stdout
    subprocess.run(["tar", "-C", str(copy), "-xf", "-"], input=packed, check=True)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    done = subprocess.run([*build, "-w", str(target), str(copy)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = target.glob("*.whl")
    return zipfile.ZipFile(built)


def test_every_package_is_listed():
    folders = {path.parent.relative_to(SRC) for path in SRC.rglob("*.py") if "__pycache__" not in path.parts}
    there = {".".join(("postledger", *folder.parts)) for folder in folders}
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(there)
    assert all((SRC / folder / "__init__.py").exists() for folder in folders)


def test_the_wheel_holds_what_the_source_does(wheel: zipfile.ZipFile):
    packed = {name for name in wheel.namelist() if name.startswith("postledger/")}
    assert packed == in_source("*.py", "*.sql", "*.html", "*.css", "py.typed")


def test_nothing_in_the_source_is_of_a_kind_that_is_left_out():
    assert in_source("*") == in_source("*.py", "*.sql", "*.html", "*.css", "py.typed")


def test_the_wheel_has_the_schema_itself_and_not_a_link(wheel: zipfile.ZipFile):
    assert wheel.read("postledger/schema.sql") == (ROOT / "schema.sql").read_bytes()


def test_the_wheel_has_its_command_and_its_licence(wheel: zipfile.ZipFile):
    (info,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    assert b"postledger = postledger.cli:main" in wheel.read(f"{info}/entry_points.txt")
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_the_links_lead_where_the_layout_says():
    assert (SRC / "schema.sql").is_symlink()
    assert (SRC / "schema.sql").resolve() == (ROOT / "schema.sql").resolve()
    assert (ROOT / "typings" / "postledger").is_symlink()
    assert (ROOT / "typings" / "postledger").resolve() == SRC.resolve()


def test_what_is_imported_is_declared_and_the_other_way_round():
    assert imported() == DECLARED


def test_each_dependency_has_its_row():
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    runtime, _, others = page.partition("## Extras")
    rows = r"(?m)^\| \[`?([\w.-]+)`?\]"
    assert {name.lower() for name in re.findall(rows, runtime)} == DECLARED
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = named([one for extra in extras.values() for one in extra]) - {"postledger"}
    assert {name.lower() for name in re.findall(rows, others)} == wanted


def test_the_arrows_are_declared_for_every_layer():
    contracts = {contract["name"]: contract for contract in PROJECT["tool"]["importlinter"]["contracts"]}
    layers = {name.strip() for layer in contracts["Arrows point down"]["layers"] for name in layer.split("|")}
    packages = {path.parent.name for path in SRC.glob("*/__init__.py")}
    assert packages | {"config"} == layers
    forbidden = contracts["Pure modules do no I/O"]["forbidden_modules"]
    assert {"asyncpg", "aiohttp"} <= set(forbidden)
