"""The provider that --via names."""

from __future__ import annotations

from ..errors import ConfigurationError, UsageError
from ..workers.providers import registry
from ..workers.providers.base import Provider

_LATER_SCHEMES = ("ses", "mailgun", "sendgrid", "postmark")


def provider_of(url: str, *, concurrency: int = 1) -> Provider:
    """Not opened yet. Raises ConfigurationError, or UsageError for a scheme of a later version."""
    try:
        return registry.make(url, concurrency=concurrency)
    except ConfigurationError:
        scheme = url.partition("://")[0].lower()
        if scheme in _LATER_SCHEMES:
            raise UsageError(
                f"--via {scheme}:// is not built yet in this version: use the provider's SMTP address, smtp://..."
            ) from None
        raise
