"""Accelerate under Gavel: a GavelIterator whose checkpoints are what `accelerator.save_state` writes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gavel.client.iterator import GavelIterator
from gavel.client.job_environment import JobEnvironment

__all__ = ["iterator"]


def iterator(accelerator: Any, data: Iterable[Any], **options: Any) -> GavelIterator[Any]:
    """Return a GavelIterator over a prepared loader; options are those of GavelIterator.

    Its checkpoints hold everything that the accelerator prepared: model, optimizer, scheduler, on all ranks. Several
    ranks that Gavel did not start save nothing, because nothing would make all of them save at the same step.
    """
    if accelerator.num_processes > 1 and JobEnvironment.of(os.environ).gang_address is None:
        options.pop("checkpoint_dir", None)
    return GavelIterator(
        data,
        load_checkpoint=lambda directory: accelerator.load_state(str(_shared(directory))),
        save_checkpoint=lambda directory: accelerator.save_state(str(_shared(directory))),
        every_rank=True,
        **options,
    )


def _shared(directory: Path) -> Path:
    """The directory that all ranks write to together, beside the own one of each rank."""
    return directory.parent / "accelerate"
