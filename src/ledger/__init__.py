"""The one write path: check, append and fold in one transaction."""
