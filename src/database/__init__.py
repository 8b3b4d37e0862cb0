"""Connections, named SQL blocks, migrations and the errors that cross the SQL border."""

from .blocks import Blocks
from .connect import Connection, Database
from .errors import translated
from .migrate import SCHEMA_VERSION, migrate

__all__ = ["SCHEMA_VERSION", "Blocks", "Connection", "Database", "migrate", "translated"]
