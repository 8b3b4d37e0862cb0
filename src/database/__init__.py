"""Connections, named SQL blocks, migrations and the errors that cross the SQL border."""

from .blocks import Blocks
from .connect import Connection, Database, close, fetch_one, process_label
from .errors import GONE, first_line, translate, translated
from .migrate import SCHEMA_VERSION, migrate

__all__ = [
    "GONE",
    "SCHEMA_VERSION",
    "Blocks",
    "Connection",
    "Database",
    "close",
    "fetch_one",
    "first_line",
    "migrate",
    "process_label",
    "translate",
    "translated",
]
