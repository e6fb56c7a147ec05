"""The page about attacks lists exactly those that tests play."""

from __future__ import annotations

import runpy
from pathlib import Path

from attacks import AREAS, REGISTER, of_module

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent


def test_the_page_lists_the_attacks_that_are_played() -> None:
    said = runpy.run_path(str(ROOT / "tools" / "attacks_page.py"))["page"]()
    assert (ROOT / "docs" / "attacks.md").read_text() == said, "run python tools/attacks_page.py"
    assert len(REGISTER) >= 100
    assert {found.area for found in REGISTER.values()} <= set(AREAS)


def test_every_module_of_attacks_is_played_by_a_test() -> None:
    runpy.run_path(str(ROOT / "tools" / "attacks_page.py"))["page"]()
    modules = {found.play.__module__ for found in REGISTER.values()}
    assert modules == {path.stem for path in FOLDER.glob("*_attacks.py") if not path.name.startswith("test_")}
    for module in modules:
        assert of_module(module)
        assert f"import {module}" in (FOLDER / f"test_{module}.py").read_text()
