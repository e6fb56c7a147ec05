"""Hugging Face Trainer under Gavel: `train` resumes, and saves and leaves when asked, through a `GavelCallback`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gavel.client.checkpoints import sync, warn
from gavel.client.errors import Preempted
from gavel.client.job_environment import JobEnvironment
from gavel.client.own_loop import report
from gavel.errors import NotInstalledError

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise NotInstalledError("gavel.hf", "transformers", "transformers[torch]") from error

from gavel.torch import should_leave, wait_for_all

__all__ = ["GavelCallback", "Preempted", "newest_checkpoint", "train"]

COMPLETE = "gavel.json"
"""Written into a checkpoint when everything else is."""


def train(trainer: Any, **options: Any) -> Any:
    """`trainer.train()` from the newest checkpoint in its output directory; returns only when the training is complete.

    If Gavel or SIGTERM asks the job to leave, it saves a checkpoint and raises `Preempted`, which ends the program
    with exit code 0 unless it is caught: what follows the training does not run on a model that is not trained.
    """
    if not any(isinstance(callback, GavelCallback) for callback in trainer.callback_handler.callbacks):
        trainer.add_callback(GavelCallback())
    return trainer.train(resume_from_checkpoint=newest_checkpoint(trainer.args.output_dir), **options)


def newest_checkpoint(directory: str | Path) -> str | None:
    """Return the newest complete checkpoint in an output directory, leaving out one whose save was interrupted."""
    found = [path for path in Path(directory).glob("checkpoint-*") if path.name.partition("-")[2].isdigit()]
    found.sort(key=lambda path: int(path.name.partition("-")[2]), reverse=True)
    complete = [path for path in found if (path / COMPLETE).is_file()]
    # Trainers without the callback write no marks; the state of the trainer is the last file that they write.
    usable = complete or [path for path in found if (path / "trainer_state.json").is_file()]
    return str(usable[0]) if usable else None


class GavelCallback(TrainerCallback):
    """Reports progress, and makes the trainer save and leave when asked. Use it through `train`."""

    def __init__(self) -> None:
        self.preempted = False
        """Whether the trainer was asked to leave."""
        self._saved = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del control
        self._saved = state.global_step
        if state.is_world_process_zero:
            _check(JobEnvironment.of(os.environ), args, state)
        report(state.global_step, saved=self._saved)
        if should_leave():  # nothing is done that a checkpoint does not hold
            self.preempted = True
            raise Preempted

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args
        report(state.global_step, saved=self._saved)
        self._look(state, control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args
        self._look(state, control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del control
        wait_for_all()
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            if checkpoint.is_dir():
                sync(checkpoint)
                (checkpoint / COMPLETE).write_text(json.dumps({"step": state.global_step}))
        self._saved = state.global_step
        report(state.global_step, saved=self._saved)
        if self.preempted:
            wait_for_all()
            raise Preempted

    def _look(self, state: Any, control: Any) -> None:
        """Ask whether to leave, except after the last step: what remains is the program's own."""
        if state.global_step < state.max_steps and should_leave():
            self.preempted = control.should_save = control.should_training_stop = True


def _check(environment: JobEnvironment, args: Any, state: Any) -> None:
    """Warn of what cannot work as the job was submitted."""
    ours = environment.checkpoint_dir
    if ours is not None and not Path(args.output_dir).resolve().is_relative_to(ours.resolve()):
        warn(
            f"checkpoints go to {args.output_dir}, where another server may not find them: "
            "use TrainingArguments(output_dir=gavel.checkpoint_dir('out'))"
        )
    if environment.steps is not None and environment.steps != state.max_steps:
        warn(
            f"the job was submitted with {environment.steps} steps, but the trainer makes {state.max_steps}: "
            "its progress will be misjudged"
        )
