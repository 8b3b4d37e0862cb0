"""Connections, named SQL blocks, migrations and the errors that cross the SQL border."""

from .blocks import Blocks
from .connect import Connection, Database, close, fetch_one, process_label
from .errors import GONE, translate, translated
from .logins import prepare_login
from .migrate import SCHEMA_VERSION, migrate
from .pooler import cursor, is_pooled

__all__ = [
    "GONE",
    "SCHEMA_VERSION",
    "Blocks",
    "Connection",
    "Database",
    "close",
    "cursor",
    "fetch_one",
    "is_pooled",
    "migrate",
    "prepare_login",
    "process_label",
    "translate",
    "translated",
]
