"""The throughputs that a run of studies uses."""

from __future__ import annotations

from pathlib import Path

from gavel.core.throughputs import ThroughputTable, builtin_table, read_table
from gavel.reproduce.study import Scope


def table_of(scope: Scope) -> ThroughputTable:
    """The built-in table, or that of the file that was given."""
    return builtin_table() if scope.throughputs == "builtin" else read_table(Path(scope.throughputs))
