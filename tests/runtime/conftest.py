"""Fixtures of the fault harness."""

from fault_fixtures import fresh_folder

__all__ = ["fresh_folder"]
