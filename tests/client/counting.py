"""A training program small enough to reason about: its model is the list of batches that it has seen."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PATIENCE = 60.0


class Model:
    """What it has learned, and how that is saved."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def load(self, directory: Path) -> None:
        self.seen = json.loads((directory / "seen.json").read_text())

    def save(self, directory: Path) -> None:
        (directory / "seen.json").write_text(json.dumps(self.seen))

    @property
    def callbacks(self) -> dict[str, Callable[[Path], None]]:
        return {"load_checkpoint": self.load, "save_checkpoint": self.save}


class Shuffled:
    """Data in another order each epoch, by Python's random numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.count))
        random.shuffle(order)
        return iter(order)


def until(condition: Callable[[], object]) -> None:
    """Wait until another thread or process has done something."""
    give_up = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.001)
