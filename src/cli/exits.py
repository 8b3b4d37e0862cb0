"""Exit codes: what a script can tell apart."""

from __future__ import annotations

from enum import IntEnum

from ..errors import (
    ConfigurationError,
    ConflictError,
    DataError,
    NotFoundError,
    PostledgerError,
    UnavailableError,
    UsageError,
)


class Exit(IntEnum):
    """64 and above are those of sysexits.h."""

    OK = 0
    INCOMPLETE = 1
    STOPPED = 3
    USAGE = 64
    DATA = 65
    UNAVAILABLE = 69
    SOFTWARE = 70
    CONFIGURATION = 78


# What a command names and the database does not have, or does not allow, is wrong input to it: 65.
_CODES: dict[type[PostledgerError], Exit] = {
    UsageError: Exit.USAGE,
    DataError: Exit.DATA,
    NotFoundError: Exit.DATA,
    ConflictError: Exit.DATA,
    UnavailableError: Exit.UNAVAILABLE,
    ConfigurationError: Exit.CONFIGURATION,
    PostledgerError: Exit.UNAVAILABLE,
}

EXPLAINED = """\
  0   all sent or skipped; the command did what it says
  1   the campaign ended with failed, unknown or cancelled recipients
  3   stopped before the end: Ctrl-C, a pause, a quota
  64  the command was not understood, or is not built yet
  65  bad data: a file, a letter, an address, a campaign that is not there
  69  the database or the provider cannot be reached
  70  a fault in Postledger itself
  78  a setting is wrong or missing, or the schema does not fit"""


def code_of(error: PostledgerError) -> Exit:
    """By the nearest class of the error tree."""
    return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
