"""Lightning under Gavel: `fit` resumes, saves and leaves when asked; `GavelCheckpoint` is its part inside the trainer.

For an exact continuation in the middle of an epoch, give the trainer a `gavel.torch.ResumableLoader`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from gavel.client.errors import Preempted
from gavel.client.job_environment import JobEnvironment
from gavel.client.own_loop import checkpoint_dir, report, should_leave
from gavel.client.termination import TERMINATION
from gavel.errors import InputError, NotInstalledError

try:
    from lightning.pytorch.callbacks import Checkpoint
except ModuleNotFoundError as error:
    raise NotInstalledError("gavel.lightning", "lightning", "lightning") from error

from gavel.torch import agreed, newest, saving

__all__ = ["GavelCheckpoint", "Preempted", "fit"]

_FILE = "lightning.ckpt"
_GO, _SAVE, _LEAVE = 0, 1, 2


def fit(trainer: Any, model: Any, *arguments: Any, **options: Any) -> None:
    """`trainer.fit` from the newest checkpoint of the job; returns only when the training is complete.

    If Gavel or SIGTERM asks the job to leave, it saves a checkpoint and raises `Preempted`, which ends the program
    with exit code 0 unless it is caught: what follows the training does not run on a model that is not trained.
    """
    callback = next((found for found in trainer.callbacks if isinstance(found, GavelCheckpoint)), None)
    if callback is None:
        callback = GavelCheckpoint()
        trainer.callbacks.append(callback)
    workers = JobEnvironment.of(os.environ).world_size
    if workers != trainer.world_size and workers > 1:
        raise InputError(
            f"this is one of {workers} workers, but the trainer trains with {trainer.world_size}, so each would train "
            "by itself; give the Trainer devices=int(os.environ['LOCAL_WORLD_SIZE']) and its num_nodes"
        )
    start = callback.newest(trainer)
    trainer.fit(model, *arguments, **{"ckpt_path": start, "weights_only": False if start else None, **options})


class GavelCheckpoint(Checkpoint):  # such callbacks run last, when all others have done their part
    """Reports progress, and saves between two steps: from time to time, and when asked to leave. Use it through `fit`.

    Checkpoints are whole directories in the job's checkpoint directory, the newest two of them; without Gavel, in
    `directory`, or beside the trainer's own files.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, *, save_every_seconds: float = 600.0) -> None:
        self.preempted = False
        """Whether the trainer was asked to leave."""
        self._directory = directory
        self._save_seconds = save_every_seconds
        self._next_save = 0.0
        self._saved = 0

    def newest(self, trainer: Any) -> str | None:
        """Return the newest checkpoint; None if there is none."""
        found = newest(self._folder(trainer))
        return None if found is None else str(found / _FILE)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        del trainer, pl_module, stage
        should_leave()  # connects, and handles SIGTERM before Lightning does

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        TERMINATION.take_back()  # Lightning ends a training at SIGTERM; this callback saves it first
        self._saved = trainer.global_step
        self._next_save = time.monotonic() + self._save_seconds
        report(trainer.global_step, saved=self._saved)
        if agreed(should_leave()):  # nothing is done that a checkpoint does not hold
            self._leave()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        report(trainer.global_step, saved=self._saved)
        loop = trainer.fit_loop.epoch_loop
        # After the last batch comes what belongs to the epoch; accumulated gradients are in no checkpoint.
        between = not loop.batch_progress.is_last_batch and not loop._should_accumulate()  # noqa: SLF001
        if between and not 0 <= trainer.max_steps <= trainer.global_step:
            self._look(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if not trainer.fit_loop.done:
            self._look(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Save the trained model: what follows the training may be interrupted, too."""
        del pl_module
        if self._saved != trainer.global_step:
            self._save(trainer)

    def _look(self, trainer: Any) -> None:
        wish = _LEAVE if should_leave() else _SAVE if time.monotonic() >= self._next_save else _GO
        decision = agreed(wish)
        if decision > _GO:
            self._save(trainer)
        if decision == _LEAVE:
            self._leave()

    def _save(self, trainer: Any) -> None:
        step = trainer.global_step
        with saving(step, self._folder(trainer)) as directory:
            trainer.save_checkpoint(directory / _FILE)
        self._saved = step
        self._next_save = time.monotonic() + self._save_seconds
        report(step, saved=step)

    def _leave(self) -> None:
        self.preempted = True
        raise Preempted

    def _folder(self, trainer: Any) -> Path:
        return checkpoint_dir(self._directory or Path(trainer.default_root_dir) / "gavel")
