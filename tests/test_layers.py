"""The import direction of the layers, and the docstring that every module must have."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "gavel"
LAYERS = (
    *("wire", "client", "core", "workload", "scheduler", "program", "policies", "estimator"),
    *("journal", "security", "runtime", "sim", "plots", "bench", "reproduce", "cli"),
)
"""From the bottom up: a layer imports itself and what is before it."""
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.stem.endswith(("_pb2", "_pb2_grpc")))
SOLVERS = {"highspy", "scipy", "cvxpy"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "gavel" and len(parts) > 1 and parts[1] in LAYERS else None


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downward_only(path: Path) -> None:
    own = path.relative_to(SOURCE).parts[0]
    if own not in LAYERS:
        return  # gavel/__init__.py and version.py: the front door sees everything
    for module in imports(path):
        above = layer(module)
        assert above is None or LAYERS.index(above) <= LAYERS.index(own), f"{own} must not import {module}"


@pytest.mark.parametrize("path", sorted((SOURCE / "sim").rglob("*.py")), ids=lambda path: path.name)
def test_the_two_worlds_do_not_know_each_other(path: Path) -> None:
    assert "runtime" not in {layer(module) for module in imports(path)}


@pytest.mark.parametrize("path", sorted((SOURCE / "client").rglob("*.py")), ids=lambda path: path.name)
def test_what_training_code_imports_needs_no_numpy(path: Path) -> None:
    assert not {module.split(".")[0] for module in imports(path)} & {"numpy", "highspy", "scipy", "torch"}


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=lambda path: path.name)
def test_the_core_uses_no_solver(path: Path) -> None:
    assert not {module.split(".")[0] for module in imports(path)} & SOLVERS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_owns(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_every_layer_is_known() -> None:
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages == set(LAYERS)
