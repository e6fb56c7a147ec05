"""The page on Python: its blocks run in order, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCK = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def test_every_block_runs_and_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```python") >= 8
    names: dict[str, Any] = {"__name__": "notebook"}
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102 - our own page
        assert printed.getvalue() == expected
    assert [path.name for path in tmp_path.iterdir()] == ["utilisation.png"]


def test_every_printed_result_belongs_to_a_block() -> None:
    text = PAGE.read_text()
    assert text.count("```text") == sum(bool(expected) for _, expected in BLOCK.findall(text))
