"""Loops that act on time and on the outside world."""
