"""Where the server's socket can be: paths of sockets are short, and only one user may come near."""

import os
import stat
import sys
import tempfile
from hashlib import sha256
from pathlib import Path

from .accounts import Account, hand_over, is_plain

PATH_LIMIT = 107 if sys.platform == "linux" else 103
PREFIX = "postledger-"


def is_socket_path(folder: Path) -> bool:
    """Whether a socket here can be named by those who connect."""
    return is_plain(folder) and len(str(folder).encode()) + len("/.s.PGSQL.5432") <= PATH_LIMIT


def temporary_folder(pgdata: Path, account: Account) -> Path:
    """A folder (0700) of that user's for this data; the server touches its socket, so cleaners of /tmp leave it.

    The same one each time, so that failed starts do not litter; never one that somebody else has put there.
    """
    base = Path(tempfile.gettempdir())
    base = base if is_socket_path(base / ("x" * 30)) else Path("/tmp")
    place = base / f"{PREFIX}{sha256(os.fsencode(pgdata)).hexdigest()[:16]}"
    if not _is_private(place, account):
        fresh = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        hand_over(fresh, account)
        return fresh if place.exists() else fresh.rename(place)
    return place


def _is_private(place: Path, account: Account) -> bool:
    try:
        found = place.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700 and found.st_uid == account.uid
