"""What the tool that reads the API's description cannot know of it: which headers belong to one request alone."""

from typing import Any
from uuid import uuid4

import schemathesis


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """A key per request, where the same for all would be refused as used; and any version, where only one is right."""
    del context, kwargs
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    if "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = str(uuid4())
    if "If-Match" in case.headers:
        case.headers["If-Match"] = "*"
