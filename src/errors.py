"""The error tree: what a user is told, and nothing of exit codes or HTTP."""


class PostledgerError(Exception):
    """A failure with one clear line for the user: what, where and the remedy."""


class UsageError(PostledgerError):
    """The command or call was not understood (exit 64)."""


class DataError(PostledgerError):
    """The input's content is wrong: a column, an address, a template (exit 65)."""


class UnavailableError(PostledgerError):
    """The database or the provider cannot be reached (exit 69)."""


class ConfigurationError(PostledgerError):
    """A setting is wrong or missing, or the schema does not fit (exit 78)."""


class ConflictError(PostledgerError):
    """The state does not allow the command, or somebody else was first."""


class NotFoundError(PostledgerError):
    """There is no such campaign, recipient or sender."""
