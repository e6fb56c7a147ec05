"""What training loops in torch need beside `gavel.should_leave`: one decision of all ranks, and a resumable loader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gavel.client import own_loop, randomness
from gavel.client.batches import skipping
from gavel.client.checkpoints import Checkpoints
from gavel.errors import InputError, NotInstalledError

try:
    import torch
    from torch import distributed
    from torch.utils.data import DataLoader
except ModuleNotFoundError as error:
    raise NotInstalledError("gavel.torch", "torch", "torch") from error

__all__ = ["ResumableLoader", "newest", "saving", "should_leave"]

_HOST_BACKENDS = ("gloo", "mpi")


def should_leave(group: Any = None) -> bool:
    """`gavel.should_leave` of a distributed program: true on all ranks of the group, or on none.

    All ranks must call it at the same step, as it is an all-reduce of one number; where steps are very short, call it
    at every tenth. Without a process group it is `gavel.should_leave`.
    """
    return bool(agreed(own_loop.should_leave(), group))


@contextmanager
def saving(step: int, directory: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A directory for the checkpoint of this step, which appears complete or not at all; all ranks write into it.

    It is below the job's checkpoint directory or, without Gavel, below `directory`; the newest two are kept.
    """
    store = _store(directory)
    if several() and distributed.get_rank() > 0:
        wait_for_all()
        yield store.unfinished(step)
        wait_for_all()
    else:
        store.prepare()
        with store.writing(step) as unfinished:
            wait_for_all()
            yield unfinished
            wait_for_all()
    wait_for_all()


def newest(directory: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the newest checkpoint that `saving` has made; None if there is none."""
    return next(iter(_store(directory).newest_first()), None)


def _store(directory: str | os.PathLike[str] | None) -> Checkpoints:
    chosen = own_loop.checkpoint_dir(directory)
    if chosen is None:
        raise InputError("there is no checkpoint directory: name one for runs without Gavel, as in newest('here')")
    return Checkpoints(chosen)


def agreed(wish: int, group: Any = None) -> int:
    """Return the greatest wish of all ranks; a positive one that is not its own is noted as an order to leave."""
    if not several(group):
        return wish
    wishes = torch.tensor([int(wish)], dtype=torch.int32, device=_device(group))
    distributed.all_reduce(wishes, distributed.ReduceOp.MAX, group=group)
    return int(wishes.item())


def several(group: Any = None) -> bool:
    """Whether this process trains together with others."""
    together = distributed.is_available() and distributed.is_initialized()
    return bool(together and distributed.get_world_size(group) > 1)


def wait_for_all(group: Any = None) -> None:
    """Return when all ranks have called this."""
    if several(group):
        agreed(0, group)


def _device(group: Any) -> Any:
    backend = str(distributed.get_backend(group))
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None or any(name in backend for name in _HOST_BACKENDS):
        return torch.device("cpu")
    return torch.device(accelerator.type, torch.accelerator.current_device_index())


class ResumableLoader(DataLoader):
    """A DataLoader that continues in the middle of an epoch exactly where its `state_dict` was taken.

    The state holds the random states of the program, too (torch, numpy, Python), at the start of the epoch and at the
    time it was taken, so shuffling, augmentation and dropout continue as if nothing had happened. Within worker
    processes, batches that were done are loaded again and dropped.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gavel = _Place()

    def __iter__(self) -> Iterator[Any]:
        return self._gavel_batches(self._gavel)

    def state_dict(self) -> dict[str, Any]:
        """Return where it is; between epochs, that is the start of the next one."""
        place = self._gavel
        now = randomness.capture(self)
        if place.index == 0 or place.index >= place.batches:
            return {"index": 0, "epoch_start": now, "now": now}
        return {"index": place.index, "epoch_start": place.epoch_start, "now": now}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from there with the next epoch that is opened."""
        self._gavel.resumed = state

    def _gavel_batches(self, place: _Place) -> Iterator[Any]:
        resumed, place.resumed = place.resumed, None
        place.index = 0
        if resumed is not None:
            place.index = resumed["index"]
            randomness.restore(resumed["epoch_start"], self)
        place.epoch_start = randomness.capture(self)
        place.batches = len(self) if hasattr(self.dataset, "__len__") else float("inf")
        batches = skipping(self, super().__iter__, place.index)
        if resumed is not None and place.index:
            randomness.restore(resumed["now"], self)
        for batch in batches:
            place.index += 1
            yield batch
        place.index = 0


class _Place:
    """Where a loader is in its epoch."""

    def __init__(self) -> None:
        self.index = 0
        """How many batches of this epoch were handed out."""
        self.batches: float = 0
        self.epoch_start: randomness.State = {}
        self.resumed: dict[str, Any] | None = None
