"""Who trains together, as the loop sees it: when it may go on, when all save, when all leave. Alone, it is `Solo`.

The loop calls `meet` when it has made `look_at` steps, or when it has a wish; gangs answer the same way (`gang`).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from gavel.client.checkpoints import (
    Checkpoints,
    Position,
    explained,
    read_position,
    warn,
    write_position,
)
from gavel.client.errors import CheckpointError


class NextAction(enum.Enum):
    """What comes after the step that was just made, or what a process wishes to come."""

    GO = "go"
    SAVE = "save"
    LEAVE = "leave"
    DONE = "done"


class AskedToLeaveError(Exception):
    """It is to leave before it has begun."""


Load = Callable[[Path, Position], None]
"""Restore from a checkpoint; raises what the user's function raises."""
Fill = Callable[[Path], None]
"""Write this process's part of a checkpoint into a directory."""
Wish = Callable[[], NextAction]


class Coordination(Protocol):
    look_at: float
    """The loop must call `meet` when it has made so many steps."""

    @property
    def end(self) -> float:
        """Another rank has no batches after so many steps: if this one has, it must not train on them but `differ`."""

    def begin(self, load: Load, wish: Wish) -> Position | None:
        """Come together and load the newest checkpoint that all can load; None: there is none, begin at step 0."""

    def meet(self, step: int, wish: Wish) -> NextAction:
        """Say what comes next, waiting for the others where needed; all get the same answer at the same step."""

    def save(self, position: Position, fill: Fill | None) -> None:
        """Write a checkpoint of all together, after `meet` has said so to all; without `fill` only wait for all."""

    def differ(self) -> None:
        """Fail, and let all others fail, since they have not as many batches."""

    def part(self, *, orderly: bool = True) -> None:
        """Nothing more is expected of the others, nor of this process; or, not `orderly`, this process has failed."""


class Solo:
    """One process: it goes on or leaves as it wishes."""

    def __init__(self, store: Checkpoints | None, steps: int | None) -> None:
        self.look_at = math.inf if steps is None else float(steps)
        self.end = math.inf
        self._store = store

    def begin(self, load: Load, wish: Wish) -> Position | None:
        if wish() is NextAction.LEAVE:
            raise AskedToLeaveError
        if self._store is not None:
            self._store.prepare()
        position, unreadable = self._newest(load)
        if self._store is not None:
            self._store.set_aside(unreadable)
        return position

    def meet(self, step: int, wish: Wish) -> NextAction:
        del step
        return wish()

    def save(self, position: Position, fill: Fill | None) -> None:
        if self._store is not None and fill is not None:
            with self._store.writing(position.step) as directory:
                fill(directory)
                write_position(directory, position)

    def differ(self) -> None:
        """Nobody is there to differ from."""

    def part(self, *, orderly: bool = True) -> None:
        """Nobody is there to part from."""

    def _newest(self, load: Load) -> tuple[Position | None, list[Path]]:
        return newest(self._store, lambda checkpoint, position: tried(load, checkpoint, position))


class LoadOnlyRank(Solo):
    """One of several processes that Gavel did not start (torchrun did): it loads, and leaves saving to rank 0."""

    def begin(self, load: Load, wish: Wish) -> Position | None:
        del wish
        return self._newest(load)[0]

    def save(self, position: Position, fill: Fill | None) -> None:
        """Rank 0 does it."""


def newest(store: Checkpoints | None, attempt: Callable[[Path, Position], str]) -> tuple[Position | None, list[Path]]:
    """Load the newest checkpoint that can be loaded, and return which newer ones cannot.

    `attempt` returns why one cannot be loaded, or nothing.
    """
    bad: list[Path] = []
    if store is None:
        return None, bad
    for checkpoint in store.newest_first():
        try:
            position = read_position(checkpoint)
            why = attempt(checkpoint, position)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            why = explained(error)
        if not why:
            return position, bad
        warn(f"the checkpoint {checkpoint} cannot be loaded ({why}); trying the one before")
        bad.append(checkpoint)
    if bad:
        raise CheckpointError(
            f"no checkpoint in {store.directory} can be loaded, the newest is {bad[0].name}: "
            "repair the program, or move them away to begin anew"
        )
    return None, bad


def tried(load: Load, checkpoint: Path, position: Position) -> str:
    try:
        load(checkpoint, position)
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything; the one before may load
        return explained(error)
    return ""
