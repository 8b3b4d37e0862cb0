"""Who a mail goes to and comes from: the normal form of addresses, and which texts may stand in a name."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from attrs import frozen
from email_validator import EmailNotValidError, validate_email

from ..errors import DataError

LOCAL_LIMIT = 64
ADDRESS_LIMIT = 254
NAME_LIMIT = 998

# The characters of a dot-atom (RFC 5322 3.2.3), already in lower case.
_LOCAL = r"[a-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[a-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
# Labels with -- in third place are A-labels or reserved: idna has to look at those.
_PLAIN = re.compile(
    rf"(?=.{{3,{ADDRESS_LIMIT}}}\Z)(?=[^@]{{1,{LOCAL_LIMIT}}}@){_LOCAL}"
    rf"@(?:(?!..--){_LABEL}\.)+(?!..--)(?![0-9]+\Z){_LABEL}\Z"
)
_DOMAIN = re.compile(rf"(?:{_LABEL}\.)+(?![0-9]+\Z){_LABEL}\Z")
_LOCAL_PART = re.compile(rf"{_LOCAL}\Z")
_NAMED = re.compile(r'(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>[^"<>@]*))\s*<(?P<address>[^<>]*)>')
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""What breaks a header line in some reader: controls, and the separators that Unicode counts as line ends."""


class InvalidAddress(DataError):  # noqa: N818 - the name the package map fixes
    """Why a text is no address that we send to; the reason never repeats the text."""


class InvalidName(DataError):  # noqa: N818 - the name the package map fixes
    """Why a text cannot stand as a name in a header."""


class Address(str):
    """An address in normal form, `local@a-label` in lower-case ASCII: equal texts are equal mailboxes."""

    __slots__ = ()

    @property
    def full(self) -> str:
        return str(self)

    @property
    def local(self) -> str:
        return self.rpartition("@")[0]

    @property
    def domain(self) -> str:
        return self.rpartition("@")[2]


@frozen
class Mailbox:
    """A display name, or none, and an address in normal form."""

    name: str | None
    address: Address


def normalise(text: str) -> Address:
    """The normal form: spaces and NBSP trimmed, ASCII letters in lower case, the domain as A-label (UTS 46).

    Plus-tags and dots stay: only the receiving domain knows what they mean. Refused with a reason
    (InvalidAddress): non-ASCII local parts (they need SMTPUTF8, which relays lack), quoted local parts (legal,
    and mangled by so many systems on the way that a mail to one rarely arrives), domains without a dot,
    IP literals. Syntax alone is judged: nothing is asked of the DNS, and names for private use such as
    `.test` and `.local` pass.
    """
    trimmed = text.strip(" \u00a0")
    if trimmed.isascii():
        lowered = trimmed.lower()
        if _PLAIN.match(lowered):
            return Address(lowered)
    return _judge(trimmed)


def parse_mailbox(text: str) -> Mailbox:
    """`Name <a@b>`, `"Last, First" <a@b>` or a bare address. Raises InvalidAddress or InvalidName."""
    trimmed = text.strip(" \u00a0")
    found = _NAMED.fullmatch(trimmed)
    if found is None:
        return Mailbox(None, normalise(trimmed))
    quoted = found["quoted"]
    name = found["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    return Mailbox(check_name(clean_text(name)) or None, normalise(found["address"]))


def clean_text(value: str) -> str:
    """NUL and lone surrogates, which neither PostgreSQL nor UTF-8 can hold, become U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", value)


def clean_data(value: Any) -> Any:
    """`clean_text` for every text in JSON-like data, keys included; a new value, the old one is untouched."""
    match value:
        case str():
            return clean_text(value)
        case dict():
            return {clean_text(name): clean_data(item) for name, item in value.items()}
        case list() | tuple():
            return [clean_data(item) for item in value]
        case _:
            return value


def check_name(name: str) -> str:
    """The name without spaces around it. Raises InvalidName for line breaks, other controls, and excess."""
    trimmed = name.strip(" \u00a0")
    if found := CONTROLS.search(trimmed):
        raise InvalidName(f"the name has {_kind_of(found[0])} in it")
    if len(trimmed) > NAME_LIMIT:
        raise InvalidName(f"the name has {len(trimmed)} characters, at most {NAME_LIMIT} fit into a header")
    return trimmed


def _kind_of(control: str) -> str:
    return "a line break" if control in "\r\n" else f"the control character U+{ord(control):04X}"


def _judge(text: str) -> Address:
    for is_so, reason in _FAULTS:
        if is_so(text):
            raise InvalidAddress(reason)
    local, _, domain = text.rpartition("@")
    _check_local(local)
    address = Address(f"{local.lower()}@{_a_label(domain)}")
    if len(address) > ADDRESS_LIMIT:
        raise InvalidAddress(f"longer than {ADDRESS_LIMIT} characters")
    return address


_FAULTS: tuple[tuple[Callable[[str], bool], str], ...] = (
    (lambda text: not text, "empty"),
    # Before anything that takes time in the length of the text. Only U-labels shrink on the way to 254.
    (lambda text: len(text) > 4 * ADDRESS_LIMIT, f"longer than {ADDRESS_LIMIT} characters"),
    (lambda text: "@" not in text, "no @ in it"),
    (lambda text: text.startswith('"'), "a quoted part before the @, which is not supported"),
    (lambda text: "<" in text or ">" in text, "angle brackets: only the bare address belongs here"),
    (lambda text: text.count("@") > 1, "more than one @ in it"),
    (lambda text: CONTROLS.search(text) is not None, "a line break or control character in it"),
    (lambda text: text.startswith("@"), "nothing before the @"),
    (lambda text: text.endswith("@"), "nothing after the @"),
)


def _check_local(local: str) -> None:
    if not local.isascii():
        raise InvalidAddress("letters outside ASCII before the @, which need SMTPUTF8: not supported")
    if len(local) > LOCAL_LIMIT:
        raise InvalidAddress(f"longer than {LOCAL_LIMIT} characters before the @")
    if local.startswith(".") or local.endswith(".") or ".." in local:
        raise InvalidAddress("a dot at an edge, or two in a row, before the @")
    if not _LOCAL_PART.match(local.lower()):
        raise InvalidAddress("a character before the @ that is not allowed there")


@lru_cache(maxsize=4096)
def _a_label(domain: str) -> str:
    """The domain as it goes into DNS and SMTP. Lists repeat their domains, and idna is slow: remembered."""
    if "[" in domain:
        raise InvalidAddress("an IP address in place of a domain, which is not supported")
    try:
        checked = validate_email(
            f"postmaster@{domain}",
            allow_smtputf8=False,
            check_deliverability=False,
            test_environment=True,
            globally_deliverable=False,
        )
    except EmailNotValidError:
        # The library's sentence may quote the domain, and reasons travel further than addresses may.
        raise InvalidAddress(_why_not(domain)) from None
    if not _DOMAIN.match(checked.ascii_domain):
        raise InvalidAddress(_why_not(checked.ascii_domain))
    return checked.ascii_domain


def _why_not(domain: str) -> str:
    if " " in domain or "\u00a0" in domain:
        return "a space after the @"
    if "." not in domain:
        return "no dot in the domain"
    if "," in domain or ";" in domain:
        return "a comma or semicolon after the @: one address only"
    return "the domain is no internet name"
