"""Named SQL blocks: statements live in `.sql` files beside the module that runs them."""

import re
from importlib.resources import files

_HEADER = re.compile(r"^-- name: (\w+)[^\n]*\n", re.MULTILINE)


class Blocks:
    """The blocks of one file, by attribute: `Blocks("postledger.projections", "verify.sql").fold`.

    A block begins with a line `-- name: NAME` and ends where the next begins.
    """

    def __init__(self, package: str, filename: str) -> None:
        text = files(package).joinpath(filename).read_text(encoding="utf-8")
        parts = _HEADER.split(text)[1:]
        self.statements: dict[str, str] = {
            name: body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)
        }

    def __getattr__(self, name: str) -> str:
        try:
            return self.statements[name]
        except KeyError:
            raise AttributeError(f"no SQL block is named {name}") from None
