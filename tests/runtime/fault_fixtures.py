"""Where fault runs keep their journals: in memory where the machine has such a place, since each opens several."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from virtual_fleet import shared_connections

MEMORY = Path("/dev/shm")  # noqa: S108 - a separate folder is created there

Folders = Callable[[], Path]
"""A new, empty folder, always in the same place; earlier contents are removed."""


@pytest.fixture
def fresh_folder(tmp_path: Path) -> Iterator[Folders]:
    root = Path(tempfile.mkdtemp(prefix="gavel-faults-", dir=MEMORY)) if MEMORY.is_dir() else tmp_path / "faults"
    place = root / "run"

    def fresh() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        return place

    with shared_connections():
        yield fresh
    shutil.rmtree(root, ignore_errors=True)


__all__ = ["Folders", "fresh_folder"]
