"""Providers by the scheme of their URL: those built in, and those of installed packages."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from ...errors import ConfigurationError
from .base import Provider
from .file import FileProvider
from .null import NullProvider
from .smtp import SmtpProvider
from .urls import parse_url, scheme_of

GROUP = "postledger.providers"
"""An entry point of this group has a scheme as its name and a function like `make` as its object."""

_BUILT_IN: dict[str, Callable[[str, int], Provider]] = {
    "file": lambda url, _: FileProvider.make(parse_url(url)),
    "null": lambda url, _: NullProvider.make(parse_url(url)),
    "smtp": lambda url, concurrency: SmtpProvider.make(parse_url(url), concurrency=concurrency),
    "smtps": lambda url, concurrency: SmtpProvider.make(parse_url(url), concurrency=concurrency),
}
_NOT_BUILT = ("ses", "mailgun", "sendgrid", "postmark")


def make(url: str, *, concurrency: int) -> Provider:
    """The provider of a sender URL, for at most `concurrency` sends at a time; raises ConfigurationError."""
    scheme = scheme_of(url)
    if scheme in _BUILT_IN:
        return _BUILT_IN[scheme](url, concurrency)
    foreign = {point.name: point for point in entry_points(group=GROUP)}
    if scheme in foreign:
        return _foreign(foreign[scheme], url, concurrency)
    known = ", ".join(f"{name}://" for name in sorted({*_BUILT_IN, *foreign}))
    if scheme in _NOT_BUILT:
        raise ConfigurationError(f"sender URL: {scheme}:// is not built yet; there are {known}")
    if not scheme:
        raise ConfigurationError(f"sender URL: it begins with no scheme; there are {known}")
    raise ConfigurationError(f"sender URL: there is no provider {scheme}://; there are {known}")


def _foreign(point: EntryPoint, url: str, concurrency: int) -> Provider:
    try:
        maker: Callable[..., Provider] = point.load()
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"sender URL: the provider {point.name}:// ({point.value}) is installed but cannot be loaded: {error}"
        ) from error
    return maker(url, concurrency=concurrency)
