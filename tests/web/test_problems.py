"""Errors as problems: every class of the tree has its own, and none tells what is none of the caller's business."""

from __future__ import annotations

import inspect

import pytest

from postledger import errors
from postledger.http.problems import KINDS, Problem, problem_of

EXPECTED = {
    "UsageError": (400, "malformed"),
    "DataError": (422, "invalid"),
    "NotFoundError": (404, "not-found"),
    "ConflictError": (409, "conflict"),
    "UnavailableError": (503, "unavailable"),
    "ConfigurationError": (503, "unavailable"),
    "PostledgerError": (500, "internal"),
}
SAID = "database postgresql://mailer@db.internal/mail cannot be used"


def test_every_class_of_the_tree_is_one_of_them():
    tree = {name for name, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, Exception)}
    assert tree == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_each_has_its_status_and_those_of_ours_say_nothing(name: str):
    problem = problem_of(getattr(errors, name)(SAID))
    assert (problem.kind.status, problem.name) == EXPECTED[name]
    assert ("db.internal" in problem.detail) == (problem.kind.status < 500)
    assert ("Retry-After" in problem.headers) == (problem.kind.status == 503)


def test_a_kind_that_is_derived_is_the_one_of_its_nearest_base():
    class Special(errors.ConflictError):
        pass

    assert problem_of(Special("x")).name == "conflict"


@pytest.mark.parametrize("name", KINDS)
def test_a_problem_says_what_rfc_9457_asks_for(name: str):
    document = Problem(name, "why", field="a", remedy="do", errors=[]).document()
    assert document["type"] == f"/problems/{name}"
    assert document["status"] == KINDS[name].status
    assert (document["title"], document["detail"]) == (KINDS[name].title, "why")
    assert (document["field"], document["remedy"], document["errors"]) == ("a", "do", [])
    assert set(Problem(name, "why").document()) == {"type", "title", "status", "detail"}
