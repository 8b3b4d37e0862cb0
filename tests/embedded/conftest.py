import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.guests import PEOPLE, uid_of


@pytest.fixture(params=PEOPLE)
def person(request: pytest.FixtureRequest) -> str:
    """Who runs postledger: as root each test runs for an ordinary user too."""
    return request.param


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may enter, with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="place-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def data(place: Path, person: str) -> Path:
    """A data folder of that person's that is not there yet."""
    home = place / "home"
    home.mkdir(mode=0o755)
    os.chown(home, uid_of(person), -1)
    return home / ".postledger"
