"""Coordination of the processes that train together: when to continue, save or leave. `Solo` is for one process.

The loop calls `meet` after `look_at` steps, or when it wants something; gangs (`gang`) implement the same protocol.
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
    """What follows the step just made, or what a process wants to follow."""

    GO = "go"
    SAVE = "save"
    LEAVE = "leave"
    DONE = "done"


class AskedToLeaveError(Exception):
    """The process was asked to leave before it began."""


Load = Callable[[Path, Position], None]
"""Restore from a checkpoint; raises what the user's function raises."""
Fill = Callable[[Path], None]
"""Write this process's part of a checkpoint into a directory."""
Wish = Callable[[], NextAction]


class Coordination(Protocol):
    look_at: float
    """The loop must call `meet` once it has made this many steps."""

    @property
    def end(self) -> float:
        """The step at which another rank ran out of batches; if this rank has more, it must call `differ` instead."""

    def begin(self, load: Load, wish: Wish) -> Position | None:
        """Meet the other ranks and load the newest checkpoint that all can load; None if there is none."""

    def meet(self, step: int, wish: Wish) -> NextAction:
        """Return what comes next, waiting for other ranks where needed; all get the same answer at the same step."""

    def save(self, position: Position, fill: Fill | None) -> None:
        """Write one checkpoint of all ranks, after `meet` has told all to; without `fill`, only wait for the others."""

    def differ(self) -> None:
        """Fail this rank and all others, because batch counts differ between ranks."""

    def part(self, *, orderly: bool = True) -> None:
        """Leave the gang: no rank waits for this one any more. If not `orderly`, this process has failed."""


class Solo:
    """A single process: it continues or leaves as it likes."""

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
        """Do nothing: a single process has no other ranks."""

    def part(self, *, orderly: bool = True) -> None:
        """Do nothing: a single process has no other ranks."""

    def _newest(self, load: Load) -> tuple[Position | None, list[Path]]:
        return newest(self._store, lambda checkpoint, position: tried(load, checkpoint, position))


class LoadOnlyRank(Solo):
    """One of several processes that Gavel did not start (torchrun did): it loads, and leaves saving to rank 0."""

    def begin(self, load: Load, wish: Wish) -> Position | None:
        del wish
        return self._newest(load)[0]

    def save(self, position: Position, fill: Fill | None) -> None:
        """Do nothing: rank 0 saves."""


def newest(store: Checkpoints | None, attempt: Callable[[Path, Position], str]) -> tuple[Position | None, list[Path]]:
    """Load the newest loadable checkpoint, and return the newer ones that failed to load.

    `attempt` returns the reason why a checkpoint cannot be loaded, or an empty string.
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
        warn(f"the checkpoint {checkpoint} cannot be loaded ({why}); trying the previous one")
        bad.append(checkpoint)
    if bad:
        raise CheckpointError(
            f"no checkpoint in {store.directory} can be loaded, not even the newest, {bad[0].name}: "
            "fix the program, or move the checkpoints away to start from step 0"
        )
    return None, bad


def tried(load: Load, checkpoint: Path, position: Position) -> str:
    try:
        load(checkpoint, position)
    except Exception as error:  # noqa: BLE001 - the user's function may raise anything; the previous one may load
        return explained(error)
    return ""
