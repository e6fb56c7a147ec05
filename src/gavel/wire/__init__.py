"""The protocol between clients, scheduler and agents; `gavel.proto` is its source, the rest is made from it."""

PROTOCOL = 1
"""Agents and schedulers work together if this number is the same on both sides."""

DEFAULT_PORT = 7077
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
"""Where a scheduler listens, and where clients and agents look for it, if nobody says otherwise."""
