"""State that is written down and read again goes through `core.plain`: exact, checked, and alike everywhere."""

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
"""Modules whose records are parts of journals, kept states or saved simulations."""


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_record_that_is_kept_is_written_in_another_way(path: Path) -> None:
    names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
    assert not names & {"asdict", "astuple", "pickle"}
