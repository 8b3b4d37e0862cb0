"""A private PostgreSQL for those who have none."""

from .server import Server
from .sharing import Status, running, server_status

__all__ = ["Server", "Status", "running", "server_status"]
