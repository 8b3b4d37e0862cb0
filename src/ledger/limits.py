"""Fields of values that come from outside: how long a text, how large a number may be, and the same as JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import attrs
import orjson

from ..messages.addresses import CONTROLS, InvalidAddress, InvalidName, normalise, parse_mailbox
from .public import JSON_NAME, Unfit, name_of

SCHEMA: Final = "schema"
"""Where a field's metadata says what JSON Schema has to say of it beside its type."""

DATA_LIMIT = 1 << 20
"""Bytes of JSON."""

Check = Callable[[Any], None]

# In the terms of JSON Schema what CONTROLS says, but for NUL, which nothing here ever sees.
_IN_LINE = "\\u0001-\\u001f\\u007f-\\u009f\\u2028\\u2029"
_ONE_LINE = f"^[^{_IN_LINE}]*$"
_NOT_BLANK = f"^[^{_IN_LINE}]*[^{_IN_LINE}\\s][^{_IN_LINE}]*$"


def limited(check: Check | None = None, *, name: str | None = None, schema: dict[str, Any], **options: Any) -> Any:
    """An attrs field with a check, which raises Unfit; `name` is its public name where Python has no such word."""
    metadata = {SCHEMA: schema} if name is None else {SCHEMA: schema, JSON_NAME: name}
    if check is not None:
        options["validator"] = _validator(check)
    return attrs.field(metadata=metadata, **options)


def text(
    most: int,
    *,
    least: int = 1,
    lines: bool = False,
    example: str | None = None,
    also: Check | None = None,
    **options: Any,
) -> Any:
    """A text of so many characters; `lines`: it may have several, and be blank. `also`: one more check."""

    def check(value: str) -> None:
        if not least <= len(value) <= most:
            raise Unfit(f"{len(value)} characters", f"give it between {least} and {most}")
        if not lines and CONTROLS.search(value):
            raise Unfit("a line break or control character in it", "write it in one line")
        if least and not lines and not value.strip():
            raise Unfit("nothing but spaces", "write something")
        if also is not None:
            also(value)

    schema: dict[str, Any] = {"minLength": least, "maxLength": most}
    if not lines:
        schema["pattern"] = _NOT_BLANK if least else _ONE_LINE
    return limited(check, schema=_with(schema, example), **options)


def email(example: str = "ann@example.com", **options: Any) -> Any:
    """An address that mails can be sent to."""
    return limited(
        check_address, schema=_with({"format": "email", "minLength": 3, "maxLength": 254}, example), **options
    )


def emails(most: int, **options: Any) -> Any:
    """Some addresses."""

    def check(values: tuple[str, ...]) -> None:
        if not 1 <= len(values) <= most:
            raise Unfit(f"{len(values)} addresses", f"give between 1 and {most}")
        for value in values:
            check_address(value)

    items = {"type": "string", "format": "email", "maxLength": 254}
    schema = {"minItems": 1, "maxItems": most, "items": items, "examples": [["ann@example.com"]]}
    return limited(check, schema=schema, **options)


def mailbox(example: str = "Shop <news@shop.example>", **options: Any) -> Any:
    """Who a mail comes from, as headers write it."""

    def check(value: str) -> None:
        try:
            parse_mailbox(value)
        except (InvalidAddress, InvalidName) as error:
            raise Unfit(str(error), "write it as `Shop <news@shop.example>`") from None

    return limited(check, schema=_with({"minLength": 3, "maxLength": 1000}, example), **options)


def number(least: int, most: int, *, example: int | None = None, **options: Any) -> Any:
    """A whole number within bounds."""

    def check(value: int) -> None:
        if not least <= value <= most:
            raise Unfit(f"{value}", f"give it between {least} and {most}")

    return limited(check, schema=_with({"minimum": least, "maximum": most}, example), **options)


def data(**options: Any) -> Any:
    """The variables of a letter, as an object."""
    return limited(check_data, schema={"examples": [{"town": "Ulm"}]}, repr=False, **options)


def cursor(**options: Any) -> Any:
    """Where a page begins: opaque to whoever hands it back."""
    return text(200, example=None, default=None, **options)


def page_size(default: int = 100, most: int = 1000, **options: Any) -> Any:
    """How many items a page has at most."""
    return number(1, most, default=default, **options)


def check_data(value: Any) -> None:
    """Merge data: no more than a row may hold. Raises Unfit."""
    size = len(orjson.dumps(value))
    if size > DATA_LIMIT:
        raise Unfit(f"{size:,} bytes", f"keep it within {DATA_LIMIT:,}")


def check_no_address(value: str) -> None:
    """For words that go into the log, which keeps no addresses. Raises Unfit."""
    if "@" in value:
        raise Unfit("an @ in it, and the log keeps no addresses", "say it without one")


def check_hash(value: str) -> None:
    """A sha256 in hex. Raises Unfit."""
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise Unfit("no hash in it", "write 64 hexadecimal digits in lower case")


def check_address(value: str) -> None:
    """Raises Unfit."""
    try:
        normalise(value)
    except InvalidAddress as error:
        raise Unfit(str(error), "write it as local@domain") from None


def _with(schema: dict[str, Any], example: Any) -> dict[str, Any]:
    return schema if example is None else {**schema, "examples": [example]}


def _validator(check: Check) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    def validate(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is None:
            return
        try:
            check(value)
        except Unfit as unfit:
            raise Unfit(unfit.reason, unfit.remedy, name_of(attribute)) from None

    return validate
