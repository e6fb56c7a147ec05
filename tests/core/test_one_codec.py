"""Stored state goes through `core.serialization`: exact, checked, and the same everywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "gavel"
KEPT = (
    *(path for path in sorted((SOURCE / "scheduler").glob("*.py"))),
    *(path for path in sorted((SOURCE / "runtime").glob("*.py"))),
    *(
        SOURCE / "sim" / f"{name}.py"
        for name in ("simulate", "ideal", "world", "progress", "recorder", "rounds", "outcome")
    ),
)
"""Modules whose records are parts of journals, stored states or saved simulations."""


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_stored_records_use_no_other_encoding(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & {"asdict", "astuple", "pickle"}
