"""What the source says of a class's fields: the text that stands below each."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise


@lru_cache(maxsize=512)
def field_words(cls: type) -> Mapping[str, str]:
    """By field, those of its bases too; empty where the source is not at hand."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        found.update(_own_words(base))
    return found


def _own_words(cls: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):
        return {}
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, below in pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[field.target.id] = re.sub(r"\s+", " ", below.value.value).strip()
    return found
