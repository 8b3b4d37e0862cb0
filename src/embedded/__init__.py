"""A private PostgreSQL for those who have none."""

from .server import Server
from .sharing import running

__all__ = ["Server", "running"]
