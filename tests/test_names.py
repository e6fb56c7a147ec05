"""One name for each thing: a class name is used once in the whole source tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "gavel"
MODULES = sorted(path for path in SOURCE.rglob("*.py") if not path.stem.endswith(("_pb2", "_pb2_grpc")))


def homes() -> dict[str, list[str]]:
    """The modules that define a class, by its name; private and nested classes count."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return found


def test_no_two_classes_share_a_name() -> None:
    shared = {name: paths for name, paths in homes().items() if len(paths) > 1}
    assert not shared, f"say in the name what each of them is: {shared}"
