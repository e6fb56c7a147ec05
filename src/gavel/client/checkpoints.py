"""Checkpoints on disk: one directory each, which appears complete or not at all, with the training position inside.

What the user's function writes and what we write (`gavel.json`) share one directory, so neither exists alone.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gavel.client.errors import CheckpointError, TrainingError, from_full_disk
from gavel.client.randomness import State

KEEP = 2
"""How many of the newest checkpoints to keep; the older one is used if the newest turns out to be unreadable."""
POSITION = "gavel.json"
_FORMAT = 1
_PREFIX = "step-"
_UNFINISHED = ".unfinished-"
_UNREADABLE = "unreadable-"
_LEAST_BYTES = 4096


@dataclass(frozen=True)
class Randomness:
    """Random states of one rank: at the start of the epoch (for the order of its batches), and at the save."""

    epoch_start: State
    now: State


@dataclass(frozen=True)
class Position:
    """How far the training is: `index` batches of `epoch` are done, `step` batches in total."""

    step: int
    epoch: int
    index: int
    randomness: dict[int, Randomness]
    """By rank."""


class Checkpoints:
    """The checkpoints of one job in one directory. One process writes; any number may read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(self) -> None:
        """Create the directory and remove what an interrupted save left behind."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"cannot create the checkpoint directory {self.directory}: {explained(error)}",
                blameless=from_full_disk(error),
            ) from error
        self._remove(self.directory.glob(f"{_UNFINISHED}*"))

    def newest_first(self) -> list[Path]:
        found = [path for path in self.directory.glob(f"{_PREFIX}*") if path.name.removeprefix(_PREFIX).isdigit()]
        return sorted(found, key=step_of, reverse=True)

    def unfinished(self, step: int) -> Path:
        """The directory that `writing` fills."""
        return self.directory / f"{_UNFINISHED}{step}"

    @contextmanager
    def writing(self, step: int) -> Iterator[Path]:
        """Yield a directory to write into; it becomes the newest checkpoint if the block succeeds, or is removed."""
        unfinished = self.unfinished(step)
        try:
            self._remove([unfinished])
            unfinished.mkdir()
            yield unfinished
            sync(unfinished)
            self._put(unfinished, self.directory / f"{_PREFIX}{step:09d}")
        except Exception as error:
            blameless = from_full_disk(error) or _takes_nothing(self.directory)
            self._remove([unfinished])
            if isinstance(error, TrainingError):
                raise
            raise CheckpointError(
                f"cannot write the checkpoint at step {step} to {self.directory}: {explained(error)}",
                blameless=blameless,
            ) from error
        self._remove(self.newest_first()[KEEP:])

    def set_aside(self, checkpoints: list[Path]) -> None:
        """Move unreadable checkpoints out of the way but keep the latest for inspection."""
        if checkpoints:
            self._remove(self.directory.glob(f"{_UNREADABLE}*"))
        for checkpoint in checkpoints:
            with suppress(OSError):
                checkpoint.rename(self.directory / f"{_UNREADABLE}{checkpoint.name}")

    def _put(self, unfinished: Path, target: Path) -> None:
        if target.exists():  # from a run that reached this step before and was rolled back
            old = self.directory / f"{_UNFINISHED}old-{target.name}"
            self._remove([old])
            target.rename(old)
            unfinished.rename(target)
            self._remove([old])
        else:
            unfinished.rename(target)
        _sync_entry(self.directory)

    @staticmethod
    def _remove(paths: Iterator[Path] | list[Path]) -> None:
        for path in paths:
            shutil.rmtree(path, ignore_errors=True)


def step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix(_PREFIX))


def write_position(directory: Path, position: Position) -> None:
    ranks = {
        str(rank): {"epoch_start": states.epoch_start, "now": states.now}
        for rank, states in position.randomness.items()
    }
    document = {
        "format": _FORMAT,
        "step": position.step,
        "epoch": position.epoch,
        "index": position.index,
        "randomness": ranks,
    }
    (directory / POSITION).write_text(json.dumps(document, separators=(",", ":")))


def read_position(directory: Path) -> Position:
    document: dict[str, Any] = json.loads((directory / POSITION).read_text())
    if document["format"] != _FORMAT:
        raise ValueError(f"its format is {document['format']}, but this version of Gavel reads {_FORMAT}")
    ranks = {
        int(rank): Randomness(states["epoch_start"], states["now"]) for rank, states in document["randomness"].items()
    }
    return Position(int(document["step"]), int(document["epoch"]), int(document["index"]), ranks)


def explained(error: BaseException) -> str:
    """Describe an error in words, with its type where the words alone would be unclear."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.strerror}: {error.filename}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def warn(sentence: str) -> None:
    print(f"gavel: {sentence}", file=sys.stderr, flush=True)


def _takes_nothing(directory: Path) -> bool:
    """Whether a disk is full or read-only; for libraries that do not say why a write failed."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return False
    return bool(disk.f_flag & os.ST_RDONLY) or disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def sync(directory: Path) -> None:
    """Flush everything in a directory to disk before it gets its final name."""
    for parent, _, files in os.walk(directory):
        for path in (Path(parent) / name for name in files):
            if path.is_file():
                _sync_entry(path)
        _sync_entry(Path(parent))


def _sync_entry(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems do not support fsync on directories
            raise
    finally:
        os.close(descriptor)
