"""Provider URLs: their parts, their options, and texts without their secrets."""

import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from attrs import field, frozen

from ...errors import ConfigurationError

_USERINFO = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<rest>\S*)", re.IGNORECASE)
_KEY_IS_HOST = frozenset({"sendgrid", "postmark"})
"""Schemes whose whole address is the secret: `sendgrid://KEY`."""


def redact(text: str) -> str:
    """The text with the secret of every provider URL in it replaced by `***`."""
    return _USERINFO.sub(_redacted, text)


def _redacted(found: re.Match[str]) -> str:
    scheme, rest = found["scheme"], found["rest"]
    if scheme.lower() in _KEY_IS_HOST:
        return f"{scheme}://***"
    # The last '@' before a query: passwords may hold '@', '/' and '#' though they should be encoded.
    userinfo, at, place = rest.rpartition("@")
    if not at:
        return found[0]
    user, colon, _ = userinfo.partition(":")
    return f"{scheme}://{user if colon else ''}{colon}***@{place}"


@frozen
class ProviderUrl:
    """A provider URL in parts; `password` is resolved where it was written as `env:NAME`."""

    scheme: str
    host: str
    port: int | None
    user: str
    password: str = field(repr=False)
    path: str
    options: Mapping[str, str]

    def refuse_unknown(self, *known: str) -> None:
        """Every option must be one of these; raises ConfigurationError that names the first that is not."""
        for name in self.options:
            if name not in known:
                takes = f"takes only {', '.join(known)}" if known else "takes no options"
                raise ConfigurationError(f"sender URL: {self.scheme}:// knows no option {name!r}; it {takes}")

    def choice(self, name: str, *allowed: str, default: str) -> str:
        """The option's value, which must be one of `allowed`."""
        value = self.options.get(name, default)
        if value not in allowed:
            raise ConfigurationError(f"sender URL: option {name}={value} must be one of {', '.join(allowed)}")
        return value


def parse_url(url: str) -> ProviderUrl:
    """Raises ConfigurationError, whose text shows no more of the URL than scheme, host and option names."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError(
            f"sender URL: {scheme_of(url)}://... has no readable host and port; "
            "in a user name or password write @ : / ? # % as %40 %3A %2F %3F %23 %25"
        ) from None
    return ProviderUrl(
        scheme=parts.scheme,
        host=parts.hostname or "",
        port=port,
        user=unquote(parts.username or ""),
        password=_password(parts),
        path=unquote(parts.path),
        options=_options(parts),
    )


def scheme_of(url: str) -> str:
    """What stands before `://`; empty where nothing does."""
    scheme, separator, _ = url.partition("://")
    return scheme.lower() if separator else ""


def _password(parts: SplitResult) -> str:
    written = parts.password or ""
    if not written.startswith("env:"):
        return unquote(written)
    name = written.removeprefix("env:")
    value = os.environ.get(name, "")
    if not value:
        raise ConfigurationError(f"sender URL: the password is env:{name}, but the variable {name} is not set")
    return value


def _options(parts: SplitResult) -> dict[str, str]:
    if parts.fragment:
        raise ConfigurationError(f"sender URL: {parts.scheme}:// takes no '#'; in a password write it as %23")
    options: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in options:
            raise ConfigurationError(f"sender URL: option {name!r} is given twice")
        options[name] = value
    return options
