"""Connections, named SQL blocks, migrations and the errors that cross the SQL border."""

from .blocks import Blocks
from .connect import Connection, Database, close, fetch_one, process_label
from .errors import GONE, first_line, translate, translated
from .logins import prepare_login
from .migrate import SCHEMA_VERSION, begin_epoch, foreign_epoch, migrate
from .pooler import cursor, is_pooled

__all__ = [
    "GONE",
    "SCHEMA_VERSION",
    "Blocks",
    "Connection",
    "Database",
    "begin_epoch",
    "close",
    "cursor",
    "fetch_one",
    "first_line",
    "foreign_epoch",
    "is_pooled",
    "migrate",
    "prepare_login",
    "process_label",
    "translate",
    "translated",
]
