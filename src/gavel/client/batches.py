"""The batches of one epoch from a given index, skipped in the fastest way that yields exactly the same batches."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Batch = TypeVar("Batch")


def tell_epoch(data: object, epoch: int) -> None:
    """Tell samplers that shuffle by epoch number (DistributedSampler) which epoch begins."""
    batches = getattr(data, "batch_sampler", None)
    holders = (data, getattr(data, "sampler", None), batches, getattr(batches, "sampler", None))
    for holder in {id(holder): holder for holder in holders}.values():
        tell = getattr(holder, "set_epoch", None)
        if callable(tell):
            tell(epoch)


def batches_from(data: Iterable[Batch], index: int, *, by_index: bool | None = None) -> Iterator[Batch]:
    """Return the batches of an epoch from number `index`.

    A loader with a sampler can skip by index, without loading. Within this process that gives the same batches; with
    worker processes, random augmentations would draw different numbers, so there it is done only on request.
    """
    sampler = _index_sampler(data) if index else None
    if sampler is not None and (by_index or (by_index is None and getattr(data, "num_workers", 1) == 0)):
        return _skipping_indices(data, sampler, index)
    iterator = iter(data)
    for _ in range(index):
        next(iterator, None)
    return iterator


def _index_sampler(data: Any) -> str | None:
    """Return the name of the attribute that holds the index sampler of a torch DataLoader."""
    torch_data = sys.modules.get("torch.utils.data")
    if torch_data is None or type(data) is not torch_data.DataLoader:
        return None
    if isinstance(data.dataset, torch_data.IterableDataset):
        return None
    return "sampler" if data.batch_sampler is None else "batch_sampler"


def _skipping_indices(data: Any, sampler: str, index: int) -> Iterator[Any]:
    # The loader reads its sampler when an epoch begins, and refuses ordinary assignment of the attribute.
    attributes = vars(data)
    whole = attributes[sampler]
    rest = attributes[sampler] = _From(whole, index)
    try:
        iterator: Iterator[Any] = iter(data)
    finally:
        attributes[sampler] = whole
    rest.skip()
    return iterator


class _From:
    """A sampler that omits its first entries, once: loaders with persistent workers keep it for later epochs.

    It skips only after the loader has begun: both draw random numbers then, and the loader must draw first.
    """

    def __init__(self, sampler: Any, skipped: int) -> None:
        self._sampler = sampler
        self._skipped = skipped
        self._entries: Iterator[Any] = iter(())

    def __iter__(self) -> Iterator[Any]:
        self._entries = iter(self._sampler)
        return self

    def __next__(self) -> Any:
        if self._skipped:
            self.skip()
        return next(self._entries)

    def __len__(self) -> int:
        return len(self._sampler)

    def skip(self) -> None:
        skipped, self._skipped = self._skipped, 0
        for _ in range(skipped):
            next(self._entries, None)
