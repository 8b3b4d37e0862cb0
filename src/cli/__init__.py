"""The command line: the only place that builds things."""

from .app import main

__all__ = ["main"]
