"""Postledger: an event-sourced campaign service on PostgreSQL with LISTEN/NOTIFY."""

__version__ = "0.1.0"
